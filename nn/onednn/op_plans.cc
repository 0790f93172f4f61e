#include "nn/onednn/op_plans.h"

namespace lockstep::onednn {

namespace {

struct Choose {
    const Compiler& compiler;
    int op;

    using Plan = std::unique_ptr<OpPlan>;
    Plan operator()(const InputOp&) const { return make_input(op); }
    Plan operator()(const ConvOp& conv) const { return make_convolution(op, conv); }
    Plan operator()(const DeconvOp& deconv) const { return make_deconvolution(op, deconv); }
    Plan operator()(const LrnOp& lrn) const { return make_lrn(op, lrn); }
    Plan operator()(const BatchNormOp& norm) const { return make_batch_norm(op, norm); }
    Plan operator()(const ReluOp&) const {
        if (compiler.has_fused_relu(compiler.op(op).inputs[0])) return make_fused_away(op, compiler.op(op).inputs[0]);
        return make_activation(op, dnnl::algorithm::eltwise_relu_use_dst_for_bwd, 0.0F);
    }
    Plan operator()(const LeakyReluOp& relu) const { return make_activation(op, dnnl::algorithm::eltwise_relu, relu.slope); }
    Plan operator()(const SigmoidOp&) const { return make_activation(op, dnnl::algorithm::eltwise_logistic_use_dst_for_bwd, 0.0F); }
    Plan operator()(const PoolOp& pool) const { return make_pool(op, pool); }
    Plan operator()(const GlobalAveragePoolOp&) const { return make_global_average_pool(op); }
    Plan operator()(const AddOp&) const { return make_add(op); }
    Plan operator()(const ConcatOp&) const { return make_concat(op); }
    Plan operator()(const FullyConnectedOp& fc) const { return make_fully_connected(op, fc); }
    Plan operator()(const DropoutOp& dropout) const { return make_dropout(op, dropout); }
    Plan operator()(const PadShortcutOp& shortcut) const { return make_pad_shortcut(op, shortcut); }
    Plan operator()(const SoftmaxCrossEntropyOp& loss) const { return make_loss(op, loss); }
};

}  // namespace

std::unique_ptr<OpPlan> make_op_plan(const Compiler& compiler, int op) {
    if (const int by = compiler.done_by(op); by >= 0) return make_fused_away(op, by);
    return std::visit(Choose{compiler, op}, compiler.op(op).attributes);
}

}  // namespace lockstep::onednn
