// Sums over ranks. Inputs are f32, bf16 or f16; every element is summed in fp32 over all ranks in one pass, multiplied by `scale`
// and rounded once, to nearest, ties to even. The order of the additions is one binary tree over the ranks: the left subtree takes
// the largest power of two below their number, ((x0 + x1) + (x2 + x3)) + x4. So each implementation gives the same bits, and so
// does every schedule that adds whole subtrees.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace lockstep::reduce_kernels {

// outputs[o][i] = scale * sum over ranks of inputs[rank][i], for every output. An output is one of the inputs or overlaps none. Any
// alignment; at least one input.
void sum(DataType type, std::span<void* const> outputs, std::span<const void* const> inputs, size_t count, float scale = 1.0F);

// The same for one output of floats.
void sum(float* output, const float* const* inputs, int rank_count, size_t count);

// The plain loops that the above is compared with.
namespace reference {
void sum(DataType type, std::span<void* const> outputs, std::span<const void* const> inputs, size_t count, float scale = 1.0F);
}

// For tests: the instruction sets that this processor has, best first, and the one to use from now on (empty: the best).
std::vector<std::string> instruction_sets();
void use_instruction_set(std::string_view name);

}  // namespace lockstep::reduce_kernels
