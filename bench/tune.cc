#include "bench/tune.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/statistics.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep::bench {

using schedule::Collective;

namespace {

constexpr int64_t kSizes[] = {4, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 32 << 20};
constexpr int kRepeats = 7;
constexpr double kLongestUs = 500'000.0;

double slowest_median_us(Communicator& communicator, std::span<float> data) {
    std::vector<double> times_us;
    for (int repeat = 0; repeat <= kRepeats; ++repeat) {
        communicator.barrier({.what = "start of a trial"});
        const int64_t start_ns = now_ns();
        communicator.allreduce(data, {.what = "trial"}).wait();
        if (repeat > 0) times_us.push_back(static_cast<double>(now_ns() - start_ns) * 1e-3);
    }
    double slowest_us = 0.0;
    for (const std::string& text : gather_texts(communicator, fmt::format("{}", spread_of(times_us).median), "times")) {
        slowest_us = std::max(slowest_us, std::stod(text));
    }
    return slowest_us;
}

nlohmann::json json_of(const LinkModel& link) {
    return {{"latency_us", link.latency_us},
            {"overhead_us", link.overhead_us},
            {"wire_ns_per_byte", link.wire_ns_per_byte},
            {"sum_ns_per_byte", link.sum_ns_per_byte}};
}

nlohmann::json json_of(const Selector& selector) {
    nlohmann::json list = nlohmann::json::array();
    for (const Selector::Row& row : selector.rows(Collective::allreduce)) {
        nlohmann::json one{{"plan", describe(row.choice.plan)}};
        if (row.up_to_bytes != Tuning::kNever) one["up_to_bytes"] = row.up_to_bytes;
        list.push_back(one);
    }
    return list;
}

}  // namespace

TuneResult tune(Communicator& communicator) {
    if (communicator.tuning() == nullptr) {
        throw ConfigError(fmt::format(
            "tune: there is nothing to choose for {} on {} rank{}; schedules are chosen over TCP and MPI: start several "
            "ranks, on several nodes or with --backend tcp",
            communicator.name(), communicator.world().size, communicator.world().size == 1 ? "" : "s"));
    }
    TuneResult result{
        .backend = std::string(communicator.name()), .rank_count = communicator.world().size, .tuning = *communicator.tuning()};
    for (const int64_t bytes : kSizes) {
        const double predicted_us = result.tuning.predicted_us(bytes).value_or(0.0);
        if (predicted_us > kLongestUs) break;
        Buffer data = communicator.gradient_pool().allocate(static_cast<size_t>(bytes));
        result.rows.push_back({.bytes = bytes,
                               .choice = result.tuning.describe_choice(bytes),
                               .predicted_us = predicted_us,
                               .measured_us = slowest_median_us(communicator, data.f32())});
    }
    return result;
}

std::string to_text(const TuneResult& result) {
    std::string text = fmt::format("{}, {} ranks, {}", result.backend, result.rank_count, result.tuning.table());
    text += fmt::format("{:>12}  {:>14}  {:>14}  {}\n", "bytes", "predicted us", "measured us", "plan");
    for (const TuneRow& row : result.rows) {
        text += fmt::format("{:>12}  {:>14.1f}  {:>14.1f}  {}\n", row.bytes, row.predicted_us, row.measured_us, row.choice);
    }
    return text;
}

std::string to_json(const TuneResult& result) {
    const Tuning& tuning = result.tuning;
    nlohmann::json json{{"backend", result.backend}, {"ranks", result.rank_count}, {"origin", tuning.origin}};
    if (tuning.links) json["links"] = {{"all", json_of(tuning.links->all)}, {"node", json_of(tuning.links->node)}};
    json["flat"] = json_of(tuning.flat);
    if (tuning.rails) json["rails"] = json_of(*tuning.rails);
    if (tuning.hierarchical_from_bytes != Tuning::kNever) json["hierarchical_from_bytes"] = tuning.hierarchical_from_bytes;
    json["rows"] = nlohmann::json::array();
    for (const TuneRow& row : result.rows) {
        json["rows"].push_back(
            {{"bytes", row.bytes}, {"plan", row.choice}, {"predicted_us", row.predicted_us}, {"measured_us", row.measured_us}});
    }
    return json.dump();
}

}  // namespace lockstep::bench
