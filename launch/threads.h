// How many threads this rank may use, and which cores. Uses hwloc for the topology (launch/hwloc).
#pragma once

#include <string>
#include <vector>

#include "core/world.h"

namespace lockstep {

struct ThreadBudget {
    int allowed_cores = 1;  // in this process's affinity mask
    int node_cores = 1;
    int compute_threads = 1;
    bool shares_cores_with_peers = true;  // the mask is common to all local ranks (launcher did not bind): divide it by them
    int sharers = 0, place = 0;           // as in CoreCounts
    std::string warning;                  // one line with the exact cure; empty: fine
};

struct CoreCounts {
    int allowed = 1, node = 1;
    // When the launcher has bound this process to cores that several local ranks share: how many, and which of them this is. 1: the
    // cores are its own. 0: the launcher has not said.
    int sharers = 0, place = 0;
};

// requested 0: allowed cores / local ranks when the mask is shared, else the mask; at least 1. An explicit number is kept, with a
// warning when it exceeds the rank's cores. The mask counts as shared under launchers that never bind (ours, torchrun, none), and
// under mpirun and srun when it is that of the whole node.
ThreadBudget plan_threads(const World& world, int requested_threads);
ThreadBudget plan_threads(const World& world, int requested_threads, const CoreCounts& cores);  // pure

// This rank's contiguous cores of the shared mask; count 0: it is not to be bound (mask not shared, too few cores, or more threads
// than the share). Pure.
struct CoreRange {
    int first = 0, count = 0;
};
CoreRange cores_of_rank(const World& world, const ThreadBudget& budget);

// Binds the process to cores_of_rank, where the system allows it, and sets the OpenMP pool's size. Call before the first parallel
// region.
void apply_threads(const World& world, const ThreadBudget& budget);

}  // namespace lockstep
