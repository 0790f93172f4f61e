// What allreduce would take on a network that is not here: the real schedules under the simulator, as a table and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/schedule/link_model.h"
#include "collectives/schedule/schedule.h"
#include "collectives/selector.h"

namespace lockstep::bench {

struct SimulateOptions {
    std::vector<int> ranks = {8, 64, 1024};  // each a multiple of local_count
    std::vector<int64_t> sizes = {4, 4096, 65536, 1 << 20, 25 << 20, 100 << 20};
    LinkModel remote{.latency_us = 20.0, .overhead_us = 5.0, .wire_ns_per_byte = 0.32, .sum_ns_per_byte = 0.08};
    LinkModel local{.latency_us = 0.3, .overhead_us = 0.1, .wire_ns_per_byte = 0.05, .sum_ns_per_byte = 0.08};
    int local_count = 1;        // ranks per node; above 1, hierarchical schedules are shown besides the flat ones
    SelectorOptions selection;  // auto: each algorithm with its best radix or chunks
};

struct SimulatedRow {
    int ranks = 0;
    int64_t bytes = 0;
    schedule::Plan plan;
    bool hierarchical = false;
    double time_us = 0.0;
    double predicted_us = 0.0;  // by formula
    int64_t messages = 0;
    int64_t remote_bytes = 0;
    bool by_events = true;
    bool fastest = false;  // of its ranks and bytes
};

// By ranks, bytes, then algorithm. Throws ConfigError for ranks that do not fill their nodes or an unknown algorithm.
std::vector<SimulatedRow> simulate_allreduce(const SimulateOptions& options);

// One call per tensor of a model and no fusion: the sum of the times of all its tensors, one after another.
struct UnfusedRow {
    int ranks = 0;
    schedule::Plan plan;
    int64_t tensors = 0;
    int64_t bytes = 0;
    double time_us = 0.0;
};
std::vector<UnfusedRow> simulate_unfused(const SimulateOptions& options, const std::string& model);

std::string to_text(const SimulateOptions& options, const std::vector<SimulatedRow>& rows, const std::vector<UnfusedRow>& unfused);
std::string to_json(const SimulateOptions& options, const std::vector<SimulatedRow>& rows, const std::vector<UnfusedRow>& unfused);

}  // namespace lockstep::bench
