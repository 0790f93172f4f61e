#include <algorithm>

#include "report/outputs.h"
#include "report/text.h"

namespace lockstep {

namespace {

constexpr size_t kRanksShown = 6;
constexpr size_t kBucketsShown = 8;
constexpr size_t kWarningsShown = 4;

std::string joined(const std::vector<int>& numbers) { return fmt::format("{}", fmt::join(numbers, ", ")); }

std::string head(const RunAnalysis& analysis) {
    const RunFacts& facts = analysis.facts;
    std::string text = fmt::format("Lockstep report: {} | {} | {} rank{}, batch {} | ", facts.name, facts.model, facts.world_size,
                                   facts.world_size == 1 ? "" : "s", facts.batch_global);
    text += analysis.common_steps == 0
                ? "no step that all ranks have\n"
                : fmt::format("steps {}..{}, {} steady\n", analysis.first_step, analysis.last_step, analysis.steady_steps);
    if (!analysis.missing_ranks.empty()) text += fmt::format("MISSING records of rank {}\n", joined(analysis.missing_ranks));
    return text + "\n" + analysis.headline + "\n\n";
}

std::string rates(const RunAnalysis& analysis) {
    std::optional<double> per_rank = analysis.images_per_s;
    if (per_rank) *per_rank /= static_cast<double>(analysis.ranks.size());
    const auto step = [&](double Percentiles::*which) {
        return analysis.step_ms ? fixed((*analysis.step_ms).*which, 2) : std::string("n/a");
    };
    std::string text =
        fmt::format("images/s         {} all ranks, {} per rank\n", fixed(analysis.images_per_s, 1), fixed(per_rank, 1));
    text += fmt::format("step             p50 {}  p95 {}  p99 {} ms\n", step(&Percentiles::p50), step(&Percentiles::p95),
                        step(&Percentiles::p99));
    text += fmt::format("sync efficiency  {} measured (lost: transfer {}, waiting {}); {} by formula\n",
                        percent(analysis.sync_efficiency), percent(analysis.exposed_transfer_share),
                        percent(analysis.arrival_wait_share), analysis.model ? percent(analysis.model->efficiency) : "n/a");
    return text + fmt::format("overlap          {} of the transfer hidden behind compute\n\n", percent(analysis.overlap_share));
}

std::string budget_table(const RunAnalysis& analysis) {
    if (!analysis.mean_ms) return "";
    const size_t shown = std::min(kRanksShown, analysis.ranks.size());
    const auto row = [&](std::string_view title, auto value) {
        std::string text =
            fmt::format("{:<17}{:>9.2f}{:>8.1f}", title, value(*analysis.mean_ms, *analysis.step_mean_ms),
                        100.0 * value(*analysis.mean_ms, *analysis.step_mean_ms) / std::max(*analysis.step_mean_ms, 1e-9));
        for (size_t rank = 0; rank < shown; ++rank) {
            text += fmt::format("{:>9.2f}", value(*analysis.ranks[rank].mean_ms, *analysis.ranks[rank].step_mean_ms));
        }
        return text + "\n";
    };
    std::string text = fmt::format("{:<17}{:>9}{:>8}", "ms per step", "mean", "%");
    for (size_t rank = 0; rank < shown; ++rank) text += fmt::format("{:>9}", fmt::format("rank {}", analysis.ranks[rank].rank));
    text += shown < analysis.ranks.size() ? fmt::format("  ({} more in report.html)\n", analysis.ranks.size() - shown) : "\n";
    for (const Part part : kParts) {
        text += row(part_title(part), [part](const PerPart<double>& ms, double) { return ms[part]; });
    }
    return text + row("step", [](const PerPart<double>&, double step_ms) { return step_ms; }) + "\n";
}

std::string bucket_table(const RunAnalysis& analysis) {
    if (analysis.buckets.empty()) return "";
    std::string text = fmt::format("{:<6}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}  {}\n", "bucket", "MiB", "ready ms", "start",
                                   "arrived", "end", "hidden", "GB/s", "layers");
    for (size_t index = 0; index < std::min(kBucketsShown, analysis.buckets.size()); ++index) {
        const BucketSummary& bucket = analysis.buckets[index];
        text += fmt::format("{:<6}{:>9}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9}{:>8}  {}\n", bucket.bucket,
                            mebibytes(bucket.info.bytes), bucket.ready_ms, bucket.start_ms, bucket.arrived_ms, bucket.end_ms,
                            percent(bucket.hidden_share, 0), fixed(bucket.algbw_gb_per_s, 2), bucket.info.layers);
    }
    if (analysis.buckets.size() > kBucketsShown)
        text += fmt::format("({} more in report.html)\n", analysis.buckets.size() - kBucketsShown);
    return text + "\n";
}

std::string remarks(const RunAnalysis& analysis) {
    std::string text;
    for (const RankSummary& rank : analysis.ranks) {
        if (rank.cause.empty()) continue;
        text += fmt::format("straggler: rank {} is last in {} of the steps, by {} on average; cause: {}\n", rank.rank,
                            percent(rank.last_share, 0), fixed(rank.mean_lateness_ms, 2, " ms"), rank.cause);
    }
    for (const PauseSummary& pause : analysis.pauses) {
        text += fmt::format("{}: {} times, {:.2f} s in all (not part of the steps)\n", pause_name(pause.kind), pause.count,
                            pause.total_s);
    }
    if (analysis.data) text += "data: " + analysis.data->sentence + "\n";
    if (analysis.clock_error_ms) text += fmt::format("clocks of the hosts agree within {:.3f} ms\n", *analysis.clock_error_ms);
    for (size_t index = 0; index < std::min(kWarningsShown, analysis.warnings.size()); ++index) {
        text += fmt::format("warning: {}\n", analysis.warnings[index]);
    }
    if (analysis.warnings.size() > kWarningsShown) {
        text += fmt::format("({} more warnings in report.json)\n", analysis.warnings.size() - kWarningsShown);
    }
    return text;
}

}  // namespace

std::string terminal_summary(const RunAnalysis& analysis) {
    return head(analysis) + rates(analysis) + budget_table(analysis) + bucket_table(analysis) + remarks(analysis);
}

}  // namespace lockstep
