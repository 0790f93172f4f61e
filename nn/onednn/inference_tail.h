// What follows a convolution in evaluation and is done in its pass: the batch norm, whose running statistics make it one
// multiplication and one addition per channel, the addition of a shortcut, and a ReLU. The weights stay as they are, so evaluation
// may run between two training steps at any time.
#pragma once

#include <optional>

#include "nn/onednn/compiler.h"

namespace lockstep::onednn {

// `result`: the convolution's, in which the shortcut is then read too.
dnnl::post_ops post_ops_of(const InferenceTail& tail, const MemoryDesc& result);

// Where the tail's operands lie: relu(sum factors + terms + addend). Adds the step that makes factors and terms from the arena.
struct TailOperands {
    Value factors, terms;
    std::optional<Value> addend;

    Arguments arguments() const;  // of the post-ops
};
TailOperands tail_operands(Compiler& compiler, const InferenceTail& tail, const MemoryDesc& result);

}  // namespace lockstep::onednn
