#include "report/data_supply.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {

namespace {

constexpr double kWorthAdvice = 0.01;  // of the step

double value_of(const MetricsLine& line, std::string_view key) {
    const auto found = std::ranges::find(line.values, key, &std::pair<std::string, double>::first);
    return found == line.values.end() ? 0.0 : found->second;
}

std::string advice(const DataSupply& supply, double images_per_s_of_rank) {
    if (supply.wait_share < kWorthAdvice) return "";
    const double demand = images_per_s_of_rank / std::max(1.0 - supply.wait_share, 0.01);
    const double needed = std::ceil(demand / supply.images_per_s_per_thread);
    if (needed > supply.workers) {
        return fmt::format(
            "; data.workers={:.0f} would keep up with {:.0f} images/s, where there are cores for them; else smaller "
            "pictures: `lockstep data pack --max-side 256`",
            needed, demand);
    }
    return "; the threads would suffice with cores of their own: fewer compute threads (train.threads), or smaller pictures: "
           "`lockstep data pack --max-side 256`";
}

}  // namespace

std::optional<DataSupply> data_supply(const RunAnalysis& analysis, std::span<const MetricsLine> metrics) {
    const auto line = std::find_if(metrics.rbegin(), metrics.rend(),
                                   [](const MetricsLine& candidate) { return value_of(candidate, "data.workers") > 0.0; });
    if (line == metrics.rend() || !analysis.mean_ms || !analysis.images_per_s || *analysis.step_mean_ms <= 0.0) return std::nullopt;
    DataSupply supply{.wait_share = (*analysis.mean_ms)[Part::data_wait] / *analysis.step_mean_ms,
                      .images_per_s_per_thread = value_of(*line, "data.images_per_s_per_thread"),
                      .workers = value_of(*line, "data.workers"),
                      .ready_batches = value_of(*line, "data.ready_batches"),
                      .read_mb_per_s = value_of(*line, "data.read_mb_per_s"),
                      .sentence = {}};
    if (supply.images_per_s_per_thread <= 0.0) return std::nullopt;
    const double ranks = static_cast<double>(std::max<size_t>(analysis.ranks.size(), 1));
    supply.sentence = fmt::format(
        "steps wait {:.1f} % of their time for data; {:.0f} loader thread{} of a rank make{} {:.0f} images/s "
        "each, {:.1f} batches lie ready, {:.1f} MB/s are read{}",
        100.0 * supply.wait_share, supply.workers, supply.workers == 1.0 ? "" : "s", supply.workers == 1.0 ? "s" : "",
        supply.images_per_s_per_thread, supply.ready_batches, supply.read_mb_per_s, advice(supply, *analysis.images_per_s / ranks));
    return supply;
}

}  // namespace lockstep
