// Sums over ranks. Every element is summed in rank order, ((x0 + x1) + x2) + ..., in fp32, so each implementation gives the same
// bits.
#pragma once

#include <cstddef>

namespace lockstep::reduce_kernels {

// output[i] = sum over ranks of inputs[rank][i]. `output` may be one of the inputs; otherwise no overlap. Any alignment.
void sum(float* output, const float* const* inputs, int rank_count, size_t count);

// Puts that sum into all buffers, in blocks that stay in the first-level cache.
void sum_into_all(float* const* buffers, int rank_count, size_t count);

// The plain loops that the above is compared with.
namespace reference {
void sum(float* output, const float* const* inputs, int rank_count, size_t count);
void sum_into_all(float* const* buffers, int rank_count, size_t count);
}  // namespace reference

}  // namespace lockstep::reduce_kernels
