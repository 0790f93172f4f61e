#include <algorithm>

#include <fmt/format.h>

#include "bench/allreduce_bench.h"
#include "bench/machine_json.h"

namespace lockstep::bench {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const AllreduceRow& row, int rank_count) {
    return {{"bytes", row.bytes},
            {"unit", row.unit},
            {"tensors", row.tensors},
            {"name", row.name},
            {"setting", row.setting},
            {"kind", row.kind},
            {"calls", row.calls},
            {"median_us", row.median_us},
            {"p10_us", row.p10_us},
            {"p99_us", row.p99_us},
            {"algbw", row.algbw_gb_per_s()},
            {"busbw_gb_per_s", row.busbw_gb_per_s(rank_count)},
            {"cpu_s", row.cpu_s},
            {"link_bytes", row.link_bytes}};
}

Json json_of(const AllreduceFailure& failure) {
    return {{"name", failure.name}, {"setting", failure.setting}, {"at", failure.unit}, {"reason", failure.reason}};
}

Json json_of(const ContestantFacts& facts) {
    return {{"name", facts.name}, {"setting", facts.setting}, {"version", facts.version}, {"how", facts.how}};
}

template <typename Items, typename... More>
Json list_of(const Items& items, More... more) {
    Json list = Json::array();
    for (const auto& item : items) list.push_back(json_of(item, more...));
    return list;
}

std::string placement(const AllreduceBenchResult& result) {
    if (!result.link.empty()) return fmt::format("nodes on emulated links ({})", result.link);
    if (result.oversubscribed) return "one node, oversubscribed: more ranks than cores";
    return fmt::format("one node, {} core(s) per rank", result.cores_per_rank);
}

std::string duration(double us) {
    if (us < 1e3) return fmt::format("{:.2f} us", us);
    return us < 1e6 ? fmt::format("{:.2f} ms", us / 1e3) : fmt::format("{:.2f} s", us / 1e6);
}

// The fastest of Lockstep's rows of this unit; 0: none.
double lockstep_us(const AllreduceBenchResult& result, const std::string& unit) {
    double best = 0;
    for (const AllreduceRow& row : result.rows) {
        if (row.unit == unit && row.kind == "lockstep" && (best == 0 || row.median_us < best)) best = row.median_us;
    }
    return best;
}

}  // namespace

std::string to_json(const AllreduceBenchResult& result) {
    const int ranks = result.options.rank_count;
    const Json json{{"benchmark", "allreduce"},
                    {"ranks", ranks},
                    {"placement", placement(result)},
                    {"link", result.link},
                    {"oversubscribed", result.oversubscribed},
                    {"cores_per_rank", result.cores_per_rank},
                    {"rounds", result.options.rounds},
                    {"turn_ms", result.options.turn_ms},
                    {"rows", list_of(result.rows, ranks)},
                    {"sweep", list_of(result.sweep, ranks)},
                    {"contestants", list_of(result.contestants)},
                    {"missing", list_of(result.missing)},
                    {"failures", list_of(result.failures)},
                    {"steal_share", result.steal_share},
                    {"machine", json_of(result.machine)}};
    return json.dump();
}

std::string to_text(const AllreduceBenchResult& result) {
    const int ranks = result.options.rank_count;
    const MachineFacts& machine = result.machine;
    std::string text =
        fmt::format("allreduce, fp32, {} ranks, {}\n{}, Linux {}, {} with {}, load {:.2f}, steal {:.1f} %\n", ranks,
                    placement(result), machine.cpu_model, machine.kernel, machine.congestion_control, machine.queue_discipline,
                    machine.load_average.empty() ? 0.0 : machine.load_average[0], 100 * result.steal_share);
    std::string unit;
    for (const AllreduceRow& row : result.rows) {
        if (row.unit != unit) {
            text += fmt::format("\n{:<44} {:>11} {:>11} {:>11} {:>9} {:>11} {:>9}\n", row.unit, "median", "p10", "p99", "bus GB/s",
                                "CPU s/call", "ratio");
            unit = row.unit;
        }
        const double ours_us = lockstep_us(result, unit);
        const std::string name = fmt::format("{}, {}{}", row.name, row.kind == "best" ? "best forced: " : "", row.setting);
        text += fmt::format("{:<44} {:>11} {:>11} {:>11} {:>9.3f} {:>11.3g} {:>9}\n", name, duration(row.median_us),
                            duration(row.p10_us), duration(row.p99_us), row.busbw_gb_per_s(ranks), row.cpu_s,
                            ours_us > 0 ? fmt::format("{:.2f}", row.median_us / ours_us) : "");
    }
    text += "\nratio: time over that of the fastest row of Lockstep\n";
    for (const ContestantFacts& facts : result.contestants) {
        if (facts.setting == "default" || facts.name == "lockstep")
            text += fmt::format("{}, {}: {}\n", facts.name, facts.setting, facts.version);
    }
    for (const AllreduceFailure& missing : result.missing) text += fmt::format("missing: {}: {}\n", missing.name, missing.reason);
    for (const AllreduceFailure& failure : result.failures) {
        text += fmt::format("failed: {}, {}, at {}: {}\n", failure.name, failure.setting, failure.unit, failure.reason);
    }
    return text;
}

}  // namespace lockstep::bench
