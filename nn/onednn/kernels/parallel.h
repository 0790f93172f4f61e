// Work on the OpenMP pool. parallel_ranges splits a range, at multiples of `grain`. The pieces depend on the number of threads, so
// `work` must treat elements one by one.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace lockstep::onednn {

// work() on each thread of the pool, in a team, which work-sharing loops in it share. Alone without a team: the runtime would
// allocate one each time.
template <typename Work>
void on_all_threads(const Work& work) {
    const int threads = omp_get_max_threads();
    if (threads == 1) {
        work();
        return;
    }
#pragma omp parallel num_threads(threads)
    work();
}

template <typename Work>  // work(begin, end)
void parallel_ranges(int64_t count, int64_t smallest_piece, const Work& work, int64_t grain = 64) {
    // All threads or one: the runtime keeps its team from loop to loop as long as the size stays.
    const int threads = count < 2 * smallest_piece ? 1 : omp_get_max_threads();
    if (threads == 1) {
        work(int64_t{0}, count);
        return;
    }
    const int64_t piece = ((count + threads - 1) / threads + grain - 1) / grain * grain;
#pragma omp parallel num_threads(threads)
    {
        const int64_t begin = std::min(count, piece * omp_get_thread_num());
        const int64_t end = std::min(count, begin + piece);
        if (begin < end) work(begin, end);
    }
}

}  // namespace lockstep::onednn
