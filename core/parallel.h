// Loops over the OpenMP pool. With one thread nothing of OpenMP runs: its runtime would allocate a team of one for every loop.
#pragma once

#include <cstdint>

namespace lockstep {

// Runs body(index) for each index in [0, count); each index belongs to one thread.
template <typename Body>
void parallel_for(int threads, int64_t count, const Body& body) {
    if (threads == 1) {
        for (int64_t index = 0; index < count; ++index) body(index);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t index = 0; index < count; ++index) body(index);
}

}  // namespace lockstep
