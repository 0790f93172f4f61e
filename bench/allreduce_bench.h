// `lockstep bench allreduce`: Lockstep beside the allreduce libraries that are installed, on the same buffers, in turns.
//
// Every library in every setting is a contestant: a group of processes that sleep between turns. Per unit of work the contestants
// take turns, A B C A B C ..., so drift of the machine hits all alike; a figure is taken over the calls of all rounds, each call's
// time being the longest of all ranks'. What one call is: contestant.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/machine_facts.h"

namespace lockstep::bench {

struct AllreduceUnit {            // one timed piece of work
    std::string label;            // "64KiB", "resnet50: 161 tensors"
    std::vector<int64_t> counts;  // floats of each tensor
    int64_t byte_count() const;
};

// "4B", "64KiB", "102228128". ConfigError naming the nearest size that is possible: whole floats, at most 1 GiB.
AllreduceUnit parse_unit(const std::string& text);

struct AllreduceBenchOptions {
    int rank_count = 2;
    std::vector<AllreduceUnit> units;
    std::vector<std::string> peers;                        // of peer_names()
    std::vector<std::string> lockstep_backends;            // of CommunicatorOptions::backend
    std::vector<std::string> lockstep_algorithms{"auto"};  // of PlanOptions::algorithm, or `fastest`: auto in any order
    bool sweep = true;                                     // peers also in forced settings, of which the best becomes a row
    int rounds = 5;
    double turn_ms = 60;         // about; at least two calls
    double timeout_s = 60;       // for a turn or a start; then the contestant is out
    std::string program_folder;  // where the contestants' programs lie
    bool progress = false;       // a line on stderr per unit
};

std::vector<std::string> peer_names();  // openmpi, mpich, gloo

struct AllreduceRow {
    std::string unit;
    int64_t bytes = 0;
    int tensors = 1;
    std::string name, setting;
    std::string kind;  // lockstep | default | best | sweep
    int calls = 0;
    double median_us = 0, p10_us = 0, p99_us = 0;
    double cpu_s = 0;       // of all ranks, per call
    double link_bytes = 0;  // sent between nodes, all nodes together, per call

    double algbw_gb_per_s() const { return static_cast<double>(bytes) / median_us / 1e3; }
    double busbw_gb_per_s(int rank_count) const { return algbw_gb_per_s() * 2 * (rank_count - 1) / rank_count; }
};

struct AllreduceFailure {  // a contestant that could not be compared, or not any more
    std::string name, setting, unit, reason;
};

struct ContestantFacts {
    std::string name, setting, version;
    std::string how;  // options and variables that make the setting
};

struct AllreduceBenchResult {
    AllreduceBenchOptions options;
    MachineFacts machine;  // at the start
    std::string link;      // between nodes; empty: one node
    bool oversubscribed = false;
    int cores_per_rank = 0;  // 0: not bound
    double steal_share = 0;  // of all cores' time while it ran, taken by the hypervisor
    std::vector<ContestantFacts> contestants;
    std::vector<AllreduceRow> rows;   // one per unit and contestant; of the forced settings only the best
    std::vector<AllreduceRow> sweep;  // every forced setting
    std::vector<AllreduceFailure> missing, failures;
};

// Throws ConfigError for an impossible request, before anything is started. A contestant that fails is a line in the result.
AllreduceBenchResult run_allreduce_bench(const AllreduceBenchOptions& options);

std::string to_json(const AllreduceBenchResult& result);  // one object
std::string to_text(const AllreduceBenchResult& result);  // for people
std::string to_svg(const AllreduceBenchResult& result);   // time over size, both logarithmic; single tensors only

}  // namespace lockstep::bench
