#include "nn/onednn/inference_tail.h"
#include "nn/onednn/op_plans.h"
#include "nn/onednn/pointwise_steps.h"
#include "nn/onednn/winograd_steps.h"

namespace lockstep::onednn {

namespace {

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

class ConvolutionPlan final : public OpPlan {
public:
    ConvolutionPlan(int op, const ConvOp& conv) : OpPlan(op), conv_(conv) {}

    std::optional<MemoryDesc> wanted_input(Compiler& compiler) override {
        prepare(compiler);
        return free_forward(compiler).src_desc();
    }

    void forward(Compiler& compiler) override;
    void backward(Compiler& compiler) override;
    bool carries_tail(const Compiler& compiler);

private:
    void prepare(const Compiler& compiler);
    dnnl::primitive_attr forward_attributes(const Compiler& compiler) const;
    Layouts free_layouts(const Compiler& compiler) const;
    Forward::primitive_desc make_forward(const Compiler& compiler, const Layouts& layouts) const;
    Forward::primitive_desc free_forward(const Compiler& compiler) const { return make_forward(compiler, free_layouts(compiler)); }
    BackwardWeights::primitive_desc make_backward_weights(const Compiler& compiler, const Layouts& layouts) const;
    BackwardData::primitive_desc make_backward_data(const Compiler& compiler, const Layouts& layouts) const;
    void plan_weight_layout(Compiler& compiler);
    void backward_weights(Compiler& compiler, const Value& gradient);
    void backward_data(Compiler& compiler, const Value& gradient);
    MemoryDesc bias_desc() const { return plain_desc({conv_.out_channels}, dnnl::memory::data_type::f32); }
    bool add_own_forward(Compiler& compiler, const std::optional<Value>& bias, const std::optional<TailOperands>& after);
    bool takes_winograd(Compiler& compiler, ConvolutionPass pass, const MemoryDesc& source, const MemoryDesc& result);

    ConvOp conv_;
    int input_ = 0;
    dnnl::memory::dims weight_dims_, strides_, dilates_, pad_begin_, pad_end_;
    dnnl::primitive_attr attributes_ = Compiler::attributes();  // of forward
    Forward::primitive_desc forward_desc_;
    Value source_, weights_, result_;
    std::optional<WinogradShape> winograd_;  // of the pass being added
};

// The library's dilation counts the pixels skipped.
void ConvolutionPlan::prepare(const Compiler& compiler) {
    input_ = compiler.op(op_).inputs[0];
    const int64_t group_channels = compiler.shape(input_).channels / conv_.groups;
    weight_dims_ = {conv_.out_channels, group_channels, conv_.kernel_h, conv_.kernel_w};
    if (conv_.groups > 1) {
        weight_dims_ = {conv_.groups, conv_.out_channels / conv_.groups, group_channels, conv_.kernel_h, conv_.kernel_w};
    }
    strides_ = {conv_.stride_h, conv_.stride_w};
    dilates_ = {conv_.dilation_h - 1, conv_.dilation_w - 1};
    pad_begin_ = pad_end_ = {conv_.pad_h, conv_.pad_w};
    attributes_ = forward_attributes(compiler);
}

// What forward does to its sums besides storing them.
dnnl::primitive_attr ConvolutionPlan::forward_attributes(const Compiler& compiler) const {
    dnnl::primitive_attr attributes = Compiler::attributes();
    if (const std::optional<InferenceTail>& tail = compiler.tail(op_)) {
        attributes.set_post_ops(post_ops_of(*tail, free_forward(compiler).dst_desc()));
    } else if (compiler.has_fused_relu(op_)) {
        dnnl::post_ops relu;
        relu.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
        attributes.set_post_ops(relu);
    }
    return attributes;
}

// Whether the library runs the same code with the tail as without.
bool ConvolutionPlan::carries_tail(const Compiler& compiler) {
    const auto code = [&] {
        const Forward::primitive_desc desc = free_forward(compiler);
        return std::string(desc ? desc.impl_info_str() : "");
    };
    prepare(compiler);
    const std::string with_tail = code();
    attributes_ = Compiler::attributes();
    return with_tail == code();
}

Layouts ConvolutionPlan::free_layouts(const Compiler& compiler) const {
    const auto type = compiler.library().activation_type();
    return {any_desc(compiler.dims(input_), type), any_desc(weight_dims_, type), any_desc(compiler.dims(op_), type)};
}

Forward::primitive_desc ConvolutionPlan::make_forward(const Compiler& compiler, const Layouts& layouts) const {
    const auto phase = compiler.training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const Forward::desc desc = conv_.bias ? Forward::desc(phase, algorithm, layouts.data, layouts.weights, bias_desc(),
                                                          layouts.result, strides_, dilates_, pad_begin_, pad_end_)
                                          : Forward::desc(phase, algorithm, layouts.data, layouts.weights, layouts.result, strides_,
                                                          dilates_, pad_begin_, pad_end_);
    return {desc, attributes_, compiler.library().engine, true};
}

BackwardWeights::primitive_desc ConvolutionPlan::make_backward_weights(const Compiler& compiler, const Layouts& layouts) const {
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const BackwardWeights::desc desc = conv_.bias ? BackwardWeights::desc(algorithm, layouts.data, layouts.weights, bias_desc(),
                                                                          layouts.result, strides_, dilates_, pad_begin_, pad_end_)
                                                  : BackwardWeights::desc(algorithm, layouts.data, layouts.weights, layouts.result,
                                                                          strides_, dilates_, pad_begin_, pad_end_);
    return {desc, Compiler::attributes(), compiler.library().engine, forward_desc_, true};
}

BackwardData::primitive_desc ConvolutionPlan::make_backward_data(const Compiler& compiler, const Layouts& layouts) const {
    const BackwardData::desc desc(dnnl::algorithm::convolution_direct, layouts.data, layouts.weights, layouts.result, strides_,
                                  dilates_, pad_begin_, pad_end_);
    return {desc, Compiler::attributes(), compiler.library().engine, forward_desc_, true};
}

// The arena takes the layout of the forward weights, so that forward reads them in place. In bf16 forward reads a converted copy
// anyway; then the layout of the fp32 weight gradient spares a pass over the gradient.
void ConvolutionPlan::plan_weight_layout(Compiler& compiler) {
    MemoryDesc chosen = forward_desc_.weights_desc();
    if (chosen.data_type() != dnnl::memory::data_type::f32) {
        Layouts layouts{source_.desc, any_desc(weight_dims_, dnnl::memory::data_type::f32), result_.desc};
        const auto desc = make_backward_weights(compiler, layouts);
        chosen = desc ? desc.diff_weights_desc() : plain_desc(weight_dims_, dnnl::memory::data_type::f32);
    }
    compiler.choose_layout(compiler.first_entry(op_), chosen);
}

// `source`, `result`: the layouts in which both, or their gradients, are at hand or wanted.
bool ConvolutionPlan::takes_winograd(Compiler& compiler, ConvolutionPass pass, const MemoryDesc& source, const MemoryDesc& result) {
    if (compiler.planning()) return false;
    winograd_ = winograd_shape(conv_, source, weights_.desc, result);
    const bool keeps = winograd_ && keeps_weights(compiler, *winograd_);
    return winograd_ && compiler.choose(choice_of(pass, *winograd_, keeps)) == ConvolutionCode::winograd;
}

// By an own kernel where one is chosen.
bool ConvolutionPlan::add_own_forward(Compiler& compiler, const std::optional<Value>& bias,
                                      const std::optional<TailOperands>& after) {
    const std::optional<InferenceTail>& tail = compiler.tail(op_);
    if (compiler.planning() || (tail && conv_.bias)) return false;  // a tail's factors and terms take the place of a bias
    ConvolutionFinish finish{.relu = tail ? tail->relu : compiler.has_fused_relu(op_)};
    if (after) finish = {finish.relu, after->factors, after->terms, after->addend};
    const ConvolutionOperands operands{source_, weights_, result_, bias};
    const bool has_full_blocks = conv_.out_channels % 16 == 0;  // factors and terms have no values for the rest of one
    if ((!tail || has_full_blocks) && takes_winograd(compiler, ConvolutionPass::forward, source_.desc, result_.desc)) {
        add_winograd_forward(compiler, *winograd_, operands, finish);
        return true;
    }
    const auto pointwise = pointwise_shape(conv_, source_.desc, weights_.desc, result_.desc);
    if (!pointwise) return false;
    const ConvolutionChoice choice = choice_of(ConvolutionPass::forward, *pointwise, tail.has_value());
    if (compiler.choose(choice) != ConvolutionCode::pointwise) return false;
    add_pointwise_forward(compiler, *pointwise, operands, finish);
    return true;
}

void ConvolutionPlan::forward(Compiler& compiler) {
    prepare(compiler);
    const Value& input = compiler.output(input_);
    const Layouts free = free_layouts(compiler);
    const auto make = [&](const Layouts& layouts) { return make_forward(compiler, layouts); };
    const size_t entry = compiler.first_entry(op_);
    if (compiler.planning()) {
        forward_desc_ = first_as_fast(make, {{input.desc, free.weights, free.result}}, free);
    } else {
        const MemoryDesc arena = with_type(compiler.parameter_desc(entry, weight_dims_), compiler.library().activation_type());
        forward_desc_ = first_as_fast(
            make, {{input.desc, arena, free.result}, {free.data, arena, free.result}, {input.desc, free.weights, free.result}},
            free);
    }
    source_ = compiler.as_layout(input, forward_desc_.src_desc());
    const std::optional<InferenceTail>& tail = compiler.tail(op_);
    result_ = compiler.new_value(forward_desc_.dst_desc());
    weights_ = compiler.parameter_value(entry, weight_dims_);
    std::optional<Value> bias;
    if (conv_.bias) bias = compiler.parameter_value(entry + 1, {conv_.out_channels});
    std::optional<TailOperands> after;
    if (tail) after = tail_operands(compiler, *tail, forward_desc_.dst_desc());
    if (!add_own_forward(compiler, bias, after)) {
        Arguments arguments{{DNNL_ARG_SRC, source_},
                            {DNNL_ARG_WEIGHTS, compiler.value_as(weights_, forward_desc_.weights_desc())},
                            {DNNL_ARG_DST, result_}};
        if (bias) arguments.emplace_back(DNNL_ARG_BIAS, *bias);
        if (after) {
            const Arguments more = after->arguments();
            arguments.insert(arguments.end(), more.begin(), more.end());
        }
        compiler.run<Forward>(forward_desc_, arguments);
    }
    compiler.keep_or_remake(source_);
    if (compiler.has_fused_relu(op_)) compiler.keep(result_);
    compiler.set_output(op_, result_);
    if (compiler.planning()) plan_weight_layout(compiler);
}

void ConvolutionPlan::backward(Compiler& compiler) {
    const Value gradient =
        compiler.has_fused_relu(op_) ? compiler.take_gradient_through_relu(op_, result_).value : compiler.take_gradient(op_).value;
    backward_weights(compiler, gradient);
    compiler.entries_done(op_);
    if (compiler.needs_gradient(input_)) backward_data(compiler, gradient);
}

void ConvolutionPlan::backward_weights(Compiler& compiler, const Value& gradient) {
    const size_t entry = compiler.first_entry(op_);
    const Value source = compiler.again(source_);
    if (takes_winograd(compiler, ConvolutionPass::weight_gradient, source.desc, gradient.desc)) {
        std::optional<Value> bias_gradient;
        if (conv_.bias) bias_gradient = compiler.parameter_gradient(entry + 1, bias_desc());
        add_winograd_weight_gradient(compiler, *winograd_,
                                     {source, compiler.parameter_gradient(entry, weight_dims_), gradient, bias_gradient});
        return;
    }
    Layouts free = free_layouts(compiler);
    free.weights = any_desc(weight_dims_, dnnl::memory::data_type::f32);
    const MemoryDesc arena = compiler.parameter_desc(entry, weight_dims_);
    const auto make = [&](const Layouts& layouts) { return make_backward_weights(compiler, layouts); };
    const auto desc = first_as_fast(
        make, {{source.desc, arena, gradient.desc}, {source.desc, free.weights, gradient.desc}, {free.data, arena, free.result}},
        free);
    std::vector<GradientOutput> outputs{{DNNL_ARG_DIFF_WEIGHTS, entry, desc.diff_weights_desc()}};
    if (conv_.bias) outputs.push_back({DNNL_ARG_DIFF_BIAS, entry + 1, bias_desc()});
    compiler.run_into_gradients<BackwardWeights>(desc,
                                                 {{DNNL_ARG_SRC, compiler.as_layout(source, desc.src_desc())},
                                                  {DNNL_ARG_DIFF_DST, compiler.as_layout(gradient, desc.diff_dst_desc())}},
                                                 outputs);
}

void ConvolutionPlan::backward_data(Compiler& compiler, const Value& gradient) {
    const MemoryDesc wanted = compiler.gradient_desc(input_);
    if (takes_winograd(compiler, ConvolutionPass::source_gradient, wanted, gradient.desc)) {
        const Value source_gradient = compiler.new_value(wanted);
        add_winograd_source_gradient(compiler, *winograd_, {source_gradient, weights_, gradient, std::nullopt});
        compiler.contribute(input_, source_gradient);
        return;
    }
    const Layouts free = free_layouts(compiler);
    const MemoryDesc arena = with_type(weights_.desc, compiler.library().activation_type());
    const auto make = [&](const Layouts& layouts) { return make_backward_data(compiler, layouts); };
    const auto desc = first_as_fast(
        make, {{wanted, arena, gradient.desc}, {wanted, free.weights, gradient.desc}, {free.data, free.weights, gradient.desc}},
        free);
    const Value result = compiler.new_value(desc.diff_src_desc());
    compiler.run<BackwardData>(desc, {{DNNL_ARG_DIFF_DST, compiler.as_layout(gradient, desc.diff_dst_desc())},
                                      {DNNL_ARG_WEIGHTS, compiler.value_as(weights_, desc.weights_desc())},
                                      {DNNL_ARG_DIFF_SRC, result}});
    compiler.contribute(input_, result);
}

}  // namespace

bool convolution_carries_tail(const Compiler& compiler, int op, const ConvOp& conv) {
    return ConvolutionPlan(op, conv).carries_tail(compiler);
}

std::unique_ptr<OpPlan> make_convolution(int op, const ConvOp& conv) { return std::make_unique<ConvolutionPlan>(op, conv); }

}  // namespace lockstep::onednn
