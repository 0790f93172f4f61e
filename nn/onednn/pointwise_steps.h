// Steps that compute a 1x1 convolution by our own kernel (kernels/pointwise.h).
#pragma once

#include <optional>

#include "nn/graph.h"
#include "nn/onednn/kernels/pointwise.h"
#include "nn/onednn/own_convolution.h"

namespace lockstep::onednn {

// The kernel's view of a convolution; empty when it cannot compute it: another kernel or type, a border, groups, layouts that are
// not blocked by channels, channels that fill no block, a processor without it. `weights` as they lie in the arena.
std::optional<PointwiseShape> pointwise_shape(const ConvOp& conv, const MemoryDesc& source, const MemoryDesc& weights,
                                              const MemoryDesc& result);

// Adds one step of the op being compiled.
void add_pointwise_forward(Compiler& compiler, const PointwiseShape& shape, const ConvolutionOperands& operands,
                           const ConvolutionFinish& finish);

}  // namespace lockstep::onednn
