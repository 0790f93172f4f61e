#include "nn/onednn/op_plans.h"

namespace lockstep::onednn {

namespace {

using Forward = dnnl::lrn_forward;
using Backward = dnnl::lrn_backward;

// The library's formula is LrnOp's: alpha is divided by the size. Its quick code is for size 5 and channels in blocks.
class LrnPlan final : public OpPlan {
public:
    LrnPlan(int op, const LrnOp& lrn) : OpPlan(op), lrn_(lrn) {}

    void forward(Compiler& compiler) override {
        input_ = compiler.op(op_).inputs[0];
        source_ = compiler.output(input_);
        const auto phase = compiler.training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
        forward_desc_ = {{phase, kAcross, source_.desc, lrn_.size, lrn_.alpha, lrn_.beta, lrn_.k},
                         Compiler::attributes(),
                         compiler.library().engine};
        const Value result = compiler.new_value(forward_desc_.dst_desc());
        Arguments arguments{{DNNL_ARG_SRC, source_}, {DNNL_ARG_DST, result}};
        if (has_workspace(compiler)) {
            workspace_ = compiler.new_value(forward_desc_.workspace_desc());
            arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_);
        }
        compiler.run<Forward>(forward_desc_, arguments);
        compiler.keep(source_);
        compiler.set_output(op_, result);
    }

    void backward(Compiler& compiler) override {
        if (!compiler.needs_gradient(input_)) return;
        const Value gradient = compiler.take_gradient(op_).value;
        const Value result = compiler.new_value(compiler.gradient_desc(input_));
        const Backward::primitive_desc desc({kAcross, source_.desc, gradient.desc, lrn_.size, lrn_.alpha, lrn_.beta, lrn_.k},
                                            Compiler::attributes(), compiler.library().engine, forward_desc_);
        Arguments arguments{{DNNL_ARG_SRC, source_}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, result}};
        if (has_workspace(compiler)) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_);
        compiler.run<Backward>(desc, arguments);
        compiler.contribute(input_, result);
    }

private:
    static constexpr auto kAcross = dnnl::algorithm::lrn_across_channels;

    bool has_workspace(const Compiler& compiler) const {
        return compiler.training() && forward_desc_.workspace_desc().get_size() > 0;
    }

    LrnOp lrn_;
    int input_ = 0;
    Forward::primitive_desc forward_desc_;
    Value source_, workspace_;
};

}  // namespace

std::unique_ptr<OpPlan> make_lrn(int op, const LrnOp& lrn) { return std::make_unique<LrnPlan>(op, lrn); }

}  // namespace lockstep::onednn
