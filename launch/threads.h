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
    bool shares_cores_with_peers = true;  // the mask is that of the whole node (launcher did not bind): divide it by local ranks
    std::string warning;                  // one line with the exact cure; empty: fine
};

// requested 0: allowed cores / local ranks when the mask is shared, else the mask; at least 1. An explicit number is kept.
ThreadBudget plan_threads(const World& world, int requested_threads);

// Binds the process to its share of the mask (contiguous cores) when the mask is shared and there are enough cores, and sets the
// OpenMP pool's size. Call before the first parallel region.
void apply_threads(const World& world, const ThreadBudget& budget);

}  // namespace lockstep
