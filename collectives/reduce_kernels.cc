#include "collectives/reduce_kernels.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

// Compiles the loops for every instruction set; the best one of this processor is taken at run time.
#define HWY_TARGET_INCLUDE "collectives/reduce_kernels_targets.h"
#include "hwy/foreach_target.h"
// The build's own instruction set comes last:
#include "collectives/reduce_kernels_targets.h"

namespace lockstep::reduce_kernels {

HWY_EXPORT(Sum);
HWY_EXPORT(SumIntoBoth);

namespace {
constexpr int kMaxRanks = 1024;
constexpr size_t kBlockCount = 2048;  // 8 KiB: the block of every rank stays in the first-level cache until it is written
}  // namespace

void sum(float* output, const float* const* inputs, int rank_count, size_t count) {
    HWY_DYNAMIC_DISPATCH(Sum)(output, inputs, rank_count, count);
}

void sum_into_all(float* const* buffers, int rank_count, size_t count) {
    if (rank_count == 2) return HWY_DYNAMIC_DISPATCH(SumIntoBoth)(buffers[0], buffers[1], count);
    check(rank_count <= kMaxRanks, "more ranks on a node than the kernels are made for");
    const float* inputs[kMaxRanks];
    for (size_t start = 0; start < count; start += kBlockCount) {
        const size_t block_count = std::min(kBlockCount, count - start);
        for (int rank = 0; rank < rank_count; ++rank) inputs[rank] = buffers[rank] + start;
        HWY_DYNAMIC_DISPATCH(Sum)(buffers[0] + start, inputs, rank_count, block_count);
        for (int rank = 1; rank < rank_count; ++rank) std::memcpy(buffers[rank] + start, inputs[0], block_count * sizeof(float));
    }
}

}  // namespace lockstep::reduce_kernels
