// The plans of all ops, one factory each.
#pragma once

#include <memory>

#include "nn/onednn/compiler.h"

namespace lockstep::onednn {

std::unique_ptr<OpPlan> make_op_plan(const Compiler& compiler, int op);  // chooses among those below

std::unique_ptr<OpPlan> make_input(int op);
// Whether the convolution `op` does its tail (Compiler::tail) without becoming slower itself.
bool convolution_carries_tail(const Compiler& compiler, int op, const ConvOp& conv);
std::unique_ptr<OpPlan> make_convolution(int op, const ConvOp& conv);
std::unique_ptr<OpPlan> make_deconvolution(int op, const DeconvOp& deconv);
std::unique_ptr<OpPlan> make_lrn(int op, const LrnOp& lrn);
std::unique_ptr<OpPlan> make_fully_connected(int op, const FullyConnectedOp& fc);
std::unique_ptr<OpPlan> make_batch_norm(int op, const BatchNormOp& norm);
std::unique_ptr<OpPlan> make_pool(int op, const PoolOp& pool);
std::unique_ptr<OpPlan> make_global_average_pool(int op);
std::unique_ptr<OpPlan> make_activation(int op, dnnl::algorithm algorithm, float alpha);
std::unique_ptr<OpPlan> make_fused_away(int op, int input);  // done by the op that makes `input`: the same tensor by another name
std::unique_ptr<OpPlan> make_dropout(int op, const DropoutOp& dropout);
std::unique_ptr<OpPlan> make_add(int op);
std::unique_ptr<OpPlan> make_concat(int op);
std::unique_ptr<OpPlan> make_pad_shortcut(int op, const PadShortcutOp& shortcut);
std::unique_ptr<OpPlan> make_loss(int op, const SoftmaxCrossEntropyOp& loss);

}  // namespace lockstep::onednn
