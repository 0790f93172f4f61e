// The vector loops of reduce_kernels.cc. Included once for each instruction set by Highway's foreach_target.h, so without a guard.
#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::reduce_kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// One pass over all inputs; four vectors at a time hide the latency of the additions.
void Sum(float* output, const float* const* inputs, int rank_count, size_t count) {
    const hn::ScalableTag<float> tag;
    const size_t lanes = hn::Lanes(tag);
    size_t index = 0;
    for (; index + 4 * lanes <= count; index += 4 * lanes) {
        auto sum0 = hn::LoadU(tag, inputs[0] + index);
        auto sum1 = hn::LoadU(tag, inputs[0] + index + lanes);
        auto sum2 = hn::LoadU(tag, inputs[0] + index + 2 * lanes);
        auto sum3 = hn::LoadU(tag, inputs[0] + index + 3 * lanes);
        for (int rank = 1; rank < rank_count; ++rank) {
            const float* input = inputs[rank] + index;
            sum0 = hn::Add(sum0, hn::LoadU(tag, input));
            sum1 = hn::Add(sum1, hn::LoadU(tag, input + lanes));
            sum2 = hn::Add(sum2, hn::LoadU(tag, input + 2 * lanes));
            sum3 = hn::Add(sum3, hn::LoadU(tag, input + 3 * lanes));
        }
        hn::StoreU(sum0, tag, output + index);
        hn::StoreU(sum1, tag, output + index + lanes);
        hn::StoreU(sum2, tag, output + index + 2 * lanes);
        hn::StoreU(sum3, tag, output + index + 3 * lanes);
    }
    for (; index < count; ++index) {
        float total = inputs[0][index];
        for (int rank = 1; rank < rank_count; ++rank) total += inputs[rank][index];
        output[index] = total;
    }
}

// Two buffers: both results are stored while the sum is in a register.
void SumIntoBoth(float* left, float* right, size_t count) {
    const hn::ScalableTag<float> tag;
    const size_t lanes = hn::Lanes(tag);
    size_t index = 0;
    for (; index + 2 * lanes <= count; index += 2 * lanes) {
        const auto sum0 = hn::Add(hn::LoadU(tag, left + index), hn::LoadU(tag, right + index));
        const auto sum1 = hn::Add(hn::LoadU(tag, left + index + lanes), hn::LoadU(tag, right + index + lanes));
        hn::StoreU(sum0, tag, left + index);
        hn::StoreU(sum1, tag, left + index + lanes);
        hn::StoreU(sum0, tag, right + index);
        hn::StoreU(sum1, tag, right + index + lanes);
    }
    for (; index < count; ++index) {
        const float total = left[index] + right[index];
        left[index] = total;
        right[index] = total;
    }
}

}  // namespace lockstep::reduce_kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
