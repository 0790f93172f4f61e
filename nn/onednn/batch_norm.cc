#include "nn/onednn/norm.h"
#include "nn/onednn/op_plans.h"
#include "nn/onednn/steps.h"

namespace lockstep::onednn {

namespace {

using Forward = dnnl::batch_normalization_forward;
using Backward = dnnl::batch_normalization_backward;

// By the library where our own kernels are not wanted or do not know the layout (see norm.h).
// Training: this batch's statistics, ReLU fused with a mask in a workspace. Evaluation: the arena's running statistics. Without
// `affine` the arena holds the statistics only.
class BatchNormPlan final : public OpPlan {
public:
    BatchNormPlan(int op, const BatchNormOp& norm) : OpPlan(op), norm_(norm) {}
    void forward(Compiler& compiler) override;
    void backward(Compiler& compiler) override;

private:
    enum Entry : size_t { kScale, kShift, kMean, kVariance };

    size_t place(const Compiler& compiler, Entry entry) const {
        return compiler.first_entry(op_) + (norm_.affine ? entry : entry - kMean);
    }
    void add_scale_and_shift(Compiler& compiler, Arguments& arguments) const;

    dnnl::normalization_flags flags(const Compiler& compiler) const;
    Value parameter(Compiler& compiler, Entry entry) const;

    BatchNormOp norm_;
    int input_ = 0;
    dnnl::memory::dims channels_;
    Forward::primitive_desc forward_desc_;
    Value source_, mean_, variance_, mask_;
    std::optional<NormPlan> own_;
};

dnnl::normalization_flags BatchNormPlan::flags(const Compiler& compiler) const {
    auto flags = dnnl::normalization_flags::none;
    if (norm_.affine) flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    if (compiler.has_fused_relu(op_)) flags = flags | dnnl::normalization_flags::fuse_norm_relu;
    if (!compiler.training()) flags = flags | dnnl::normalization_flags::use_global_stats;
    return flags;
}

Value BatchNormPlan::parameter(Compiler& compiler, Entry entry) const {
    return compiler.parameter_value(place(compiler, entry), channels_);
}

void BatchNormPlan::add_scale_and_shift(Compiler& compiler, Arguments& arguments) const {
    if (!norm_.affine) return;
    arguments.emplace_back(DNNL_ARG_SCALE, parameter(compiler, kScale));
    arguments.emplace_back(DNNL_ARG_SHIFT, parameter(compiler, kShift));  // backward does not read it, but asks for it
}

void BatchNormPlan::forward(Compiler& compiler) {
    input_ = compiler.op(op_).inputs[0];
    channels_ = {compiler.shape(op_).channels};
    source_ = compiler.output(input_);
    if (uses_own_norm(compiler, source_.desc)) {
        own_.emplace(op_, norm_);
        if (const int add = compiler.add_after_norm(op_); add >= 0) compiler.defer_norm(add, &*own_);
        own_->forward(compiler);
        return;
    }
    const auto phase = compiler.training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    forward_desc_ = {{phase, source_.desc, norm_.epsilon, flags(compiler)}, Compiler::attributes(), compiler.library().engine};
    if (compiler.training()) {
        mean_ = compiler.new_value(forward_desc_.mean_desc());
        variance_ = compiler.new_value(forward_desc_.variance_desc());
    } else {
        mean_ = parameter(compiler, kMean);
        variance_ = parameter(compiler, kVariance);
    }
    compiler.keep(source_);
    const bool in_place = compiler.may_overwrite(source_) && forward_desc_.dst_desc() == source_.desc;
    const Value result = in_place ? source_ : compiler.new_value(forward_desc_.dst_desc());
    Arguments arguments{{DNNL_ARG_SRC, source_}, {DNNL_ARG_MEAN, mean_}, {DNNL_ARG_VARIANCE, variance_}, {DNNL_ARG_DST, result}};
    add_scale_and_shift(compiler, arguments);
    if (compiler.training() && compiler.has_fused_relu(op_)) {
        mask_ = compiler.new_value(forward_desc_.workspace_desc());
        arguments.emplace_back(DNNL_ARG_WORKSPACE, mask_);
    }
    compiler.run<Forward>(forward_desc_, arguments);
    compiler.set_output(op_, result);
}

void BatchNormPlan::backward(Compiler& compiler) {
    if (own_) {
        own_->backward(compiler);
        return;
    }
    const Gradient gradient = compiler.take_gradient(op_);
    const Backward::primitive_desc desc({norm_.affine ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data,
                                         gradient.value.desc, source_.desc, norm_.epsilon, flags(compiler)},
                                        Compiler::attributes(), compiler.library().engine, forward_desc_);
    const bool in_place = gradient.exclusive && desc.diff_src_desc() == gradient.value.desc;
    const Value result = in_place ? gradient.value : compiler.new_value(desc.diff_src_desc());
    Arguments arguments{{DNNL_ARG_SRC, source_},
                        {DNNL_ARG_MEAN, mean_},
                        {DNNL_ARG_VARIANCE, variance_},
                        {DNNL_ARG_DIFF_DST, gradient.value},
                        {DNNL_ARG_DIFF_SRC, result}};
    add_scale_and_shift(compiler, arguments);
    if (compiler.has_fused_relu(op_)) arguments.emplace_back(DNNL_ARG_WORKSPACE, mask_);
    if (norm_.affine) {
        const MemoryDesc per_channel = plain_desc(channels_, dnnl::memory::data_type::f32);
        compiler.run_into_gradients<Backward>(desc, arguments,
                                              {{DNNL_ARG_DIFF_SCALE, place(compiler, kScale), per_channel},
                                               {DNNL_ARG_DIFF_SHIFT, place(compiler, kShift), per_channel}});
    } else {
        compiler.run<Backward>(desc, arguments);
    }

    const FeatureShape& features = compiler.shape(op_);
    const StatisticsStep::Targets targets{compiler.parameter_gradient(place(compiler, kMean), channels_),
                                          compiler.parameter_gradient(place(compiler, kVariance), channels_)};
    compiler.add_step(std::make_unique<StatisticsStep>(mean_, variance_, targets, compiler.batch(),
                                                       compiler.batch() * features.height * features.width),
                      {&mean_, &variance_});
    compiler.entries_done(op_);
    compiler.contribute(input_, result);
}

}  // namespace

std::unique_ptr<OpPlan> make_batch_norm(int op, const BatchNormOp& norm) { return std::make_unique<BatchNormPlan>(op, norm); }

}  // namespace lockstep::onednn
