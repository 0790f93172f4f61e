// What follows a convolution in evaluation and is done in its pass: the batch norm, whose running statistics make it one
// multiplication and one addition per channel, the addition of a shortcut, and a ReLU. The weights stay as they are, so evaluation
// may run between two training steps at any time.
#pragma once

#include <optional>

#include "nn/onednn/compiler.h"

namespace lockstep::onednn {

// `result`: the convolution's, in which the shortcut is then read too.
dnnl::post_ops post_ops_of(const InferenceTail& tail, const MemoryDesc& result);

// Adds the step that makes the batch norm's factors and terms from the arena, and returns the arguments of the post-ops.
Arguments tail_arguments(Compiler& compiler, const InferenceTail& tail, const MemoryDesc& result);

}  // namespace lockstep::onednn
