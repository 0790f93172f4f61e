#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/simulate.h"

namespace lockstep::bench {

namespace {

using Json = nlohmann::ordered_json;

std::string size_text(int64_t bytes) {
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
    if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
    return fmt::format("{} B", bytes);
}

std::string schedule_text(const SimulatedRow& row) {
    return row.hierarchical ? fmt::format("hierarchical, {} between nodes", describe(row.plan)) : describe(row.plan);
}

std::string time_text(double time_us) {
    if (time_us < 1e3) return fmt::format("{:.1f} us", time_us);
    if (time_us < 1e6) return fmt::format("{:.2f} ms", time_us * 1e-3);
    return fmt::format("{:.2f} s", time_us * 1e-6);
}

Json json_of(const LinkModel& link) {
    return {{"latency_us", link.latency_us},
            {"overhead_us", link.overhead_us},
            {"wire_ns_per_byte", link.wire_ns_per_byte},
            {"sum_ns_per_byte", link.sum_ns_per_byte}};
}

Json json_of(const schedule::Plan& plan) {
    return {{"algorithm", to_string(plan.algorithm)}, {"radix", plan.radix}, {"chunks", plan.chunks}};
}

}  // namespace

std::string to_text(const SimulateOptions& options, const std::vector<SimulatedRow>& rows, const std::vector<UnfusedRow>& unfused) {
    std::string text = fmt::format("between nodes: L {} us, o {} us, {} ns/B, sum {} ns/B; {} rank{} per node\n",
                                   options.remote.latency_us, options.remote.overhead_us, options.remote.wire_ns_per_byte,
                                   options.remote.sum_ns_per_byte, options.local_count, options.local_count == 1 ? "" : "s");
    text +=
        fmt::format("{:>6}  {:>10}  {:<46}{:>12}{:>12}{:>10}\n", "ranks", "bytes", "schedule", "simulated", "formula", "messages");
    for (const SimulatedRow& row : rows) {
        text += fmt::format("{:>6}  {:>10}  {:<46}{:>12}{:>12}{:>10}{}\n", row.ranks, size_text(row.bytes), schedule_text(row),
                            row.by_events ? time_text(row.time_us) : "-", time_text(row.predicted_us),
                            row.by_events ? fmt::to_string(row.messages) : "-", row.fastest ? "  fastest" : "");
    }
    for (const UnfusedRow& row : unfused) {
        text += fmt::format("{:>6}  {} tensors one by one, {} B in all: {} with {}\n", row.ranks, row.tensors, row.bytes,
                            time_text(row.time_us), describe(row.plan));
    }
    return text;
}

std::string to_json(const SimulateOptions& options, const std::vector<SimulatedRow>& rows, const std::vector<UnfusedRow>& unfused) {
    Json list = Json::array();
    for (const SimulatedRow& row : rows) {
        Json one{{"ranks", row.ranks}, {"bytes", row.bytes}, {"schedule", schedule_text(row)}, {"hierarchical", row.hierarchical}};
        one.update(json_of(row.plan));
        one.update(Json{{"time_us", row.time_us},
                        {"predicted_us", row.predicted_us},
                        {"messages", row.messages},
                        {"remote_bytes", row.remote_bytes},
                        {"by_events", row.by_events},
                        {"fastest", row.fastest}});
        list.push_back(std::move(one));
    }
    Json unfused_list = Json::array();
    for (const UnfusedRow& row : unfused) {
        Json one{{"ranks", row.ranks}, {"tensors", row.tensors}, {"bytes", row.bytes}, {"time_us", row.time_us}};
        one.update(json_of(row.plan));
        unfused_list.push_back(std::move(one));
    }
    return Json{{"simulation", "allreduce"},
                {"remote", json_of(options.remote)},
                {"local", json_of(options.local)},
                {"ranks_per_node", options.local_count},
                {"rows", list},
                {"unfused", unfused_list}}
        .dump(2);
}

}  // namespace lockstep::bench
