// Steps that compute a convolution by Winograd's algorithm (kernels/winograd.h).
#pragma once

#include <memory>
#include <optional>

#include "nn/graph.h"
#include "nn/onednn/compiler.h"
#include "nn/onednn/kernels/winograd.h"

namespace lockstep::onednn {

// The kernels' view of a convolution; empty when they cannot compute it: another kernel, stride, dilation or type, groups, layouts
// that are not blocked by channels, a processor without them. `weights` as they lie in the arena.
std::optional<WinogradShape> winograd_shape(const ConvOp& conv, const MemoryDesc& source, const MemoryDesc& weights,
                                            const MemoryDesc& result);

struct WinogradOperands {
    Value source, weights, result;  // or their gradients
    std::optional<Value> bias;
};

// What forward does to its sums: relu(sum + the operands' bias), or relu(sum scale + bias + addend) with values per channel.
struct WinogradFinish {
    bool relu = false;
    std::optional<Value> scale, bias, addend;  // bias counts with a scale only
};

// Each adds one step of the op being compiled. The weight gradient goes to the arena.
void add_winograd_forward(Compiler& compiler, const WinogradShape& shape, const WinogradOperands& operands,
                          const WinogradFinish& finish);
void add_winograd_source_gradient(Compiler& compiler, const WinogradShape& shape, const WinogradOperands& operands);
void add_winograd_weight_gradient(Compiler& compiler, const WinogradShape& shape, const WinogradOperands& operands);

}  // namespace lockstep::onednn
