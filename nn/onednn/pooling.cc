#include "nn/onednn/op_plans.h"

namespace lockstep::onednn {

namespace {

using Forward = dnnl::pooling_forward;
using Backward = dnnl::pooling_backward;

// Padding after the last pixel such that exactly `count` windows fit; more than `pad` in ceil mode.
int64_t pad_after(int64_t input, int64_t count, int64_t kernel, int64_t stride, int64_t pad) {
    const int64_t needed = (count - 1) * stride + kernel - input - pad;
    return needed > pad ? needed : pad;
}

class PoolPlan final : public OpPlan {
public:
    // Without options: the average over the whole map.
    PoolPlan(int op, std::optional<PoolOp> options) : OpPlan(op), options_(options) {}
    void forward(Compiler& compiler) override;
    void backward(Compiler& compiler) override;

private:
    void prepare(const Compiler& compiler);
    bool is_max() const { return pool_.kind == PoolOp::Kind::max; }

    std::optional<PoolOp> options_;
    PoolOp pool_;
    int input_ = 0;
    dnnl::algorithm algorithm_ = dnnl::algorithm::pooling_max;
    dnnl::memory::dims strides_, kernel_, pad_begin_, pad_end_;
    Forward::primitive_desc forward_desc_;
    Value argmax_;
};

void PoolPlan::prepare(const Compiler& compiler) {
    input_ = compiler.op(op_).inputs[0];
    const FeatureShape& in = compiler.shape(input_);
    const FeatureShape& out = compiler.shape(op_);
    pool_ = options_
                ? *options_
                : PoolOp{.kind = PoolOp::Kind::average, .kernel_h = in.height, .kernel_w = in.width, .stride_h = 1, .stride_w = 1};
    algorithm_ = is_max()              ? dnnl::algorithm::pooling_max
                 : pool_.count_padding ? dnnl::algorithm::pooling_avg_include_padding
                                       : dnnl::algorithm::pooling_avg_exclude_padding;
    strides_ = {pool_.stride_h, pool_.stride_w};
    kernel_ = {pool_.kernel_h, pool_.kernel_w};
    pad_begin_ = {pool_.pad_h, pool_.pad_w};
    pad_end_ = {pad_after(in.height, out.height, pool_.kernel_h, pool_.stride_h, pool_.pad_h),
                pad_after(in.width, out.width, pool_.kernel_w, pool_.stride_w, pool_.pad_w)};
}

void PoolPlan::forward(Compiler& compiler) {
    prepare(compiler);
    const Value& input = compiler.output(input_);
    const auto phase = compiler.training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const MemoryDesc any_result = any_desc(compiler.dims(op_), input.desc.data_type());
    forward_desc_ = {{phase, algorithm_, input.desc, any_result, strides_, kernel_, pad_begin_, pad_end_},
                     Compiler::attributes(),
                     compiler.library().engine};
    const Value result = compiler.new_value(forward_desc_.dst_desc());
    Arguments arguments{{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, result}};
    if (compiler.training() && is_max()) {
        argmax_ = compiler.new_value(forward_desc_.workspace_desc());
        arguments.emplace_back(DNNL_ARG_WORKSPACE, argmax_);
    }
    compiler.run<Forward>(forward_desc_, arguments);
    compiler.set_output(op_, result);
}

void PoolPlan::backward(Compiler& compiler) {
    if (!compiler.needs_gradient(input_)) return;
    const Value gradient = compiler.take_gradient(op_).value;
    const Value result = compiler.new_value(compiler.gradient_desc(input_));
    const Backward::primitive_desc desc({algorithm_, result.desc, gradient.desc, strides_, kernel_, pad_begin_, pad_end_},
                                        Compiler::attributes(), compiler.library().engine, forward_desc_);
    Arguments arguments{{DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, result}};
    if (is_max()) arguments.emplace_back(DNNL_ARG_WORKSPACE, argmax_);
    compiler.run<Backward>(desc, arguments);
    compiler.contribute(input_, result);
}

}  // namespace

std::unique_ptr<OpPlan> make_pool(int op, const PoolOp& pool) { return std::make_unique<PoolPlan>(op, pool); }

std::unique_ptr<OpPlan> make_global_average_pool(int op) { return std::make_unique<PoolPlan>(op, std::nullopt); }

}  // namespace lockstep::onednn
