#include "bench/copy_bandwidth.h"

#include <algorithm>
#include <cstring>

#include "core/clock.h"
#include "core/parallel.h"
#include "core/tensor.h"

namespace lockstep::bench {

double copy_bandwidth_gb_per_s(int threads) {
    constexpr size_t kBytes = size_t{256} << 20;
    constexpr int kPasses = 6;  // the first one counts too: the buffers are touched at their allocation
    HeapPool pool;
    const Buffer from = pool.allocate(kBytes);
    const Buffer to = pool.allocate(kBytes);
    const size_t piece = kBytes / static_cast<size_t>(threads) / 64 * 64;
    double best_s = 1e9;
    for (int pass = 0; pass < kPasses; ++pass) {
        const int64_t start_ns = now_ns();
        parallel_for(threads, threads, [&](int64_t part) {
            const size_t begin = piece * static_cast<size_t>(part);
            std::memcpy(to.bytes().data() + begin, from.bytes().data() + begin, piece);
        });
        best_s = std::min(best_s, static_cast<double>(now_ns() - start_ns) / 1e9);
    }
    return 2.0 * static_cast<double>(piece) * threads / best_s / 1e9;
}

}  // namespace lockstep::bench
