// Which schedule carries an operation out. Pure: equal arguments give equal plans, so all ranks choose alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "collectives/schedule/schedule.h"

namespace lockstep {

// comm.algorithm and what belongs to it; numbers of 0 are chosen here.
struct PlanOptions {
    std::string algorithm = "auto";              // auto | hierarchical | a schedule's name
    int64_t radix = 0;                           // of exchange and halving_doubling
    int64_t chunks = 0;                          // of ring, tree and double_tree: pieces in the pipeline
    int64_t exchange_below_bytes = 64 << 10;     // auto: smaller ones are exchanged whole
    int64_t ring_from_bytes = 4 << 20;           // auto, more than 8 ranks: a ring where each rank's share is at least this
    int64_t hierarchical_from_bytes = 16 << 10;  // over several nodes: smaller ones are not reduced inside the nodes first
};

class PlanChoice {
public:
    // Throws ConfigError for an unknown algorithm, and for a radix or chunks that the named one does not have.
    explicit PlanChoice(const PlanOptions& options);

    // The named algorithm where it exists for this collective (a tree has no allgather), else what `auto` takes. Up to 8 ranks
    // `auto` takes schedules that sum along one tree over the ranks: the bits do not depend on the size of a bucket.
    schedule::Plan choose(schedule::Collective collective, size_t bytes, int rank_count, int root = 0) const;

private:
    schedule::Plan choose_freely(schedule::Collective collective, size_t bytes, int rank_count) const;
    int32_t pieces(size_t bytes_in_flight) const;

    const PlanOptions options_;
    std::optional<schedule::Algorithm> named_;
};

}  // namespace lockstep
