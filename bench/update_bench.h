// Times what follows backward inside a node, in the three ways in which its ranks can bring gradients to new weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/statistics.h"
#include "collectives/communicator.h"

namespace lockstep::bench {

struct UpdateBenchOptions {
    int64_t parameters = 25'557'032;  // ResNet-50's
    int64_t bucket_bytes = 8 << 20;
    int threads = 1;  // per rank, for the update
    int rounds = 15;
};

// `whole`: allreduce, every rank updates everything (optim.sharded: off). `copies`: every rank updates its slice and stores it into
// each rank's copy of the parameters. `one copy`: every rank updates its slice of the node's one copy (optim.sharded: node).
struct UpdateWay {
    std::string name;
    Spread sum_ms;     // of the buckets
    Spread update_ms;  // inspection, update, and until all new parameters are there
    Spread read_ms;    // every rank reads all parameters, as the next forward pass will
    Spread total_ms;
};

struct UpdateBenchResult {
    UpdateBenchOptions options;
    int rank_count = 1;
    std::vector<UpdateWay> ways;  // the slowest rank's times, round by round
};

// Of communicator_options' memory, per rank and per node.
size_t update_bench_segment_bytes(const UpdateBenchOptions& options);
size_t update_bench_common_bytes(const UpdateBenchOptions& options);

// Collective over the ranks of one node. Each round rewrites all gradients and takes the ways in turn. Throws ConfigError where the
// communicator has no memory of the node.
UpdateBenchResult run_update_bench(Communicator& communicator, const UpdateBenchOptions& options);

std::string to_text(const UpdateBenchResult& result);
std::string to_json(const UpdateBenchResult& result);  // on one line

}  // namespace lockstep::bench
