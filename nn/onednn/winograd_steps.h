// Steps that compute a convolution by Winograd's algorithm (kernels/winograd.h).
#pragma once

#include <optional>

#include "nn/graph.h"
#include "nn/onednn/kernels/winograd.h"
#include "nn/onednn/own_convolution.h"

namespace lockstep::onednn {

// The kernels' view of a convolution; empty when they cannot compute it: another kernel, stride, dilation or type, groups, layouts
// that are not blocked by channels, a processor without them. `weights` as they lie in the arena.
std::optional<WinogradShape> winograd_shape(const ConvOp& conv, const MemoryDesc& source, const MemoryDesc& weights,
                                            const MemoryDesc& result);

// Whether forward keeps the transformed weights from pass to pass, in memory of its own beside the program's.
bool keeps_weights(const Compiler& compiler, const WinogradShape& shape);

// Each adds one step of the op being compiled. The weight gradient goes to the arena.
void add_winograd_forward(Compiler& compiler, const WinogradShape& shape, const ConvolutionOperands& operands,
                          const ConvolutionFinish& finish);
void add_winograd_source_gradient(Compiler& compiler, const WinogradShape& shape, const ConvolutionOperands& operands);
void add_winograd_weight_gradient(Compiler& compiler, const WinogradShape& shape, const ConvolutionOperands& operands);

}  // namespace lockstep::onednn
