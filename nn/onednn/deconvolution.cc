#include "nn/onednn/op_plans.h"

namespace lockstep::onednn {

namespace {

using Forward = dnnl::deconvolution_forward;
using BackwardData = dnnl::deconvolution_backward_data;
using BackwardWeights = dnnl::deconvolution_backward_weights;

// The arena holds the weights plain, (I, O/groups, H, W); the library names their axes (groups, O/groups, I/groups, H, W). So the
// arena's memory is seen with exchanged strides, and copied into the layout that the primitive chose.
class DeconvolutionPlan final : public OpPlan {
public:
    DeconvolutionPlan(int op, const DeconvOp& deconv) : OpPlan(op), deconv_(deconv) {}
    void forward(Compiler& compiler) override;
    void backward(Compiler& compiler) override;

private:
    using Type = dnnl::memory::data_type;

    void prepare(const Compiler& compiler);
    void backward_weights(Compiler& compiler, const Value& gradient);
    void backward_data(Compiler& compiler, const Value& gradient);
    MemoryDesc bias_desc() const { return plain_desc({deconv_.out_channels}, Type::f32); }

    DeconvOp deconv_;
    int input_ = 0;
    dnnl::memory::dims arena_dims_, weight_dims_, strides_, pad_begin_, pad_end_;
    MemoryDesc arena_weights_;
    Forward::primitive_desc forward_desc_;
    Value source_, weights_;
};

void DeconvolutionPlan::prepare(const Compiler& compiler) {
    input_ = compiler.op(op_).inputs[0];
    const int64_t channels = compiler.shape(input_).channels, groups = deconv_.groups;
    const int64_t in = channels / groups, out = deconv_.out_channels / groups;  // of one group
    const int64_t taps = deconv_.kernel_h * deconv_.kernel_w;
    arena_dims_ = {channels, out, deconv_.kernel_h, deconv_.kernel_w};
    weight_dims_ = {out, in, deconv_.kernel_h, deconv_.kernel_w};
    dnnl::memory::dims weight_strides{taps, out * taps, deconv_.kernel_w, 1};
    if (groups > 1) {
        weight_dims_.insert(weight_dims_.begin(), groups);
        weight_strides.insert(weight_strides.begin(), in * out * taps);
    }
    arena_weights_ = MemoryDesc(weight_dims_, Type::f32, weight_strides);
    strides_ = {deconv_.stride_h, deconv_.stride_w};
    pad_begin_ = {deconv_.pad_h, deconv_.pad_w};
    pad_end_ = {deconv_.pad_h - deconv_.output_pad_h, deconv_.pad_w - deconv_.output_pad_w};
}

void DeconvolutionPlan::forward(Compiler& compiler) {
    prepare(compiler);
    const Type type = compiler.library().activation_type();
    const auto phase = compiler.training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const auto algorithm = dnnl::algorithm::deconvolution_direct;
    const MemoryDesc data = any_desc(compiler.dims(input_), type), weights = any_desc(weight_dims_, type),
                     result = any_desc(compiler.dims(op_), type);
    const Forward::desc desc =
        deconv_.bias ? Forward::desc(phase, algorithm, data, weights, bias_desc(), result, strides_, pad_begin_, pad_end_)
                     : Forward::desc(phase, algorithm, data, weights, result, strides_, pad_begin_, pad_end_);
    forward_desc_ = {desc, Compiler::attributes(), compiler.library().engine};
    source_ = compiler.as_layout(compiler.output(input_), forward_desc_.src_desc());
    const Value output = compiler.new_value(forward_desc_.dst_desc());
    if (!compiler.planning()) {
        const size_t entry = compiler.first_entry(op_);
        weights_ = compiler.view(compiler.parameter_value(entry, arena_dims_), arena_weights_);
        Arguments arguments{{DNNL_ARG_SRC, source_},
                            {DNNL_ARG_WEIGHTS, compiler.value_as(weights_, forward_desc_.weights_desc())},
                            {DNNL_ARG_DST, output}};
        if (deconv_.bias) arguments.emplace_back(DNNL_ARG_BIAS, compiler.parameter_value(entry + 1, {deconv_.out_channels}));
        compiler.run<Forward>(forward_desc_, arguments);
    }
    compiler.keep(source_);
    compiler.set_output(op_, output);
}

void DeconvolutionPlan::backward(Compiler& compiler) {
    const Value gradient = compiler.take_gradient(op_).value;
    backward_weights(compiler, gradient);
    compiler.entries_done(op_);
    if (compiler.needs_gradient(input_)) backward_data(compiler, gradient);
}

void DeconvolutionPlan::backward_weights(Compiler& compiler, const Value& gradient) {
    const Type type = compiler.library().activation_type();
    const auto algorithm = dnnl::algorithm::deconvolution_direct;
    const MemoryDesc data = any_desc(compiler.dims(input_), type), weights = any_desc(weight_dims_, Type::f32),
                     result = any_desc(compiler.dims(op_), type);
    const BackwardWeights::desc desc =
        deconv_.bias ? BackwardWeights::desc(algorithm, data, weights, bias_desc(), result, strides_, pad_begin_, pad_end_)
                     : BackwardWeights::desc(algorithm, data, weights, result, strides_, pad_begin_, pad_end_);
    const BackwardWeights::primitive_desc primitive(desc, Compiler::attributes(), compiler.library().engine, forward_desc_);
    const size_t entry = compiler.first_entry(op_);
    std::vector<GradientOutput> outputs{{DNNL_ARG_DIFF_WEIGHTS, entry, primitive.diff_weights_desc(), arena_weights_}};
    if (deconv_.bias) outputs.push_back({DNNL_ARG_DIFF_BIAS, entry + 1, bias_desc()});
    compiler.run_into_gradients<BackwardWeights>(primitive,
                                                 {{DNNL_ARG_SRC, compiler.as_layout(source_, primitive.src_desc())},
                                                  {DNNL_ARG_DIFF_DST, compiler.as_layout(gradient, primitive.diff_dst_desc())}},
                                                 outputs);
}

void DeconvolutionPlan::backward_data(Compiler& compiler, const Value& gradient) {
    const Type type = compiler.library().activation_type();
    const BackwardData::primitive_desc desc(
        {dnnl::algorithm::deconvolution_direct, any_desc(compiler.dims(input_), type), any_desc(weight_dims_, type),
         any_desc(compiler.dims(op_), type), strides_, pad_begin_, pad_end_},
        Compiler::attributes(), compiler.library().engine, forward_desc_);
    const Value result = compiler.new_value(desc.diff_src_desc());
    compiler.run<BackwardData>(desc, {{DNNL_ARG_DIFF_DST, compiler.as_layout(gradient, desc.diff_dst_desc())},
                                      {DNNL_ARG_WEIGHTS, compiler.value_as(weights_, desc.weights_desc())},
                                      {DNNL_ARG_DIFF_SRC, result}});
    compiler.contribute(input_, result);
}

}  // namespace

std::unique_ptr<OpPlan> make_deconvolution(int op, const DeconvOp& deconv) {
    return std::make_unique<DeconvolutionPlan>(op, deconv);
}

}  // namespace lockstep::onednn
