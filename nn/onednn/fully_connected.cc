#include "nn/onednn/op_plans.h"

namespace lockstep::onednn {

namespace {

using Forward = dnnl::inner_product_forward;
using BackwardData = dnnl::inner_product_backward_data;
using BackwardWeights = dnnl::inner_product_backward_weights;

// The library's inner product takes a blocked (N, C, H, W) source with (O, C, H, W) weights, so nothing is flattened.
class FullyConnectedPlan final : public OpPlan {
public:
    FullyConnectedPlan(int op, const FullyConnectedOp& fc) : OpPlan(op), fc_(fc) {}
    void forward(Compiler& compiler) override;
    void backward(Compiler& compiler) override;

private:
    using Type = dnnl::memory::data_type;

    void prepare(const Compiler& compiler);
    Forward::primitive_desc make_forward(const Compiler& compiler, const Layouts& layouts) const;
    BackwardWeights::primitive_desc make_backward_weights(const Compiler& compiler, const Layouts& layouts) const;
    BackwardData::primitive_desc make_backward_data(const Compiler& compiler, const Layouts& layouts) const;
    void plan_weight_layout(Compiler& compiler);
    void backward_weights(Compiler& compiler, const Value& gradient);
    void backward_data(Compiler& compiler, const Value& gradient);
    MemoryDesc bias_desc() const { return plain_desc({fc_.out_features}, Type::f32); }
    MemoryDesc flat_desc(const Compiler& compiler, Type type) const {
        return plain_desc({compiler.batch(), fc_.out_features}, type);
    }

    FullyConnectedOp fc_;
    int input_ = 0;
    Type type_ = Type::f32;         // of source, weights and gradients
    Type result_type_ = Type::f32;  // logits are always fp32
    dnnl::memory::dims weight_dims_;
    Forward::primitive_desc forward_desc_;
    Value source_, weights_, result_;
};

void FullyConnectedPlan::prepare(const Compiler& compiler) {
    input_ = compiler.op(op_).inputs[0];
    const FeatureShape& features = compiler.shape(input_);
    weight_dims_ = {fc_.out_features, features.channels, features.height, features.width};
    type_ = compiler.library().activation_type();
    result_type_ = compiler.feeds_loss(op_) ? Type::f32 : type_;
}

Forward::primitive_desc FullyConnectedPlan::make_forward(const Compiler& compiler, const Layouts& layouts) const {
    dnnl::primitive_attr attributes = Compiler::attributes();
    if (compiler.has_fused_relu(op_)) {
        dnnl::post_ops relu;
        relu.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
        attributes.set_post_ops(relu);
    }
    const auto phase = compiler.training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const Forward::desc desc = fc_.bias ? Forward::desc(phase, layouts.data, layouts.weights, bias_desc(), layouts.result)
                                        : Forward::desc(phase, layouts.data, layouts.weights, layouts.result);
    return {desc, attributes, compiler.library().engine, true};
}

BackwardWeights::primitive_desc FullyConnectedPlan::make_backward_weights(const Compiler& compiler, const Layouts& layouts) const {
    const BackwardWeights::desc desc = fc_.bias ? BackwardWeights::desc(layouts.data, layouts.weights, bias_desc(), layouts.result)
                                                : BackwardWeights::desc(layouts.data, layouts.weights, layouts.result);
    return {desc, Compiler::attributes(), compiler.library().engine, forward_desc_, true};
}

BackwardData::primitive_desc FullyConnectedPlan::make_backward_data(const Compiler& compiler, const Layouts& layouts) const {
    const BackwardData::desc desc(layouts.data, layouts.weights, layouts.result);
    return {desc, Compiler::attributes(), compiler.library().engine, forward_desc_, true};
}

void FullyConnectedPlan::plan_weight_layout(Compiler& compiler) {
    MemoryDesc chosen = forward_desc_.weights_desc();
    if (type_ != Type::f32) {
        const auto desc =
            make_backward_weights(compiler, {source_.desc, any_desc(weight_dims_, Type::f32), flat_desc(compiler, type_)});
        chosen = desc ? desc.diff_weights_desc() : plain_desc(weight_dims_, Type::f32);
    }
    compiler.choose_layout(compiler.first_entry(op_), chosen);
}

void FullyConnectedPlan::forward(Compiler& compiler) {
    prepare(compiler);
    const Value& input = compiler.output(input_);
    const MemoryDesc flat = flat_desc(compiler, result_type_);
    const Layouts free{any_desc(compiler.dims(input_), type_), any_desc(weight_dims_, type_), flat};
    const auto make = [&](const Layouts& layouts) { return make_forward(compiler, layouts); };
    const size_t entry = compiler.first_entry(op_);
    if (compiler.planning()) {
        forward_desc_ = first_as_fast(make, {{input.desc, free.weights, flat}}, free);
    } else {
        const MemoryDesc arena = with_type(compiler.parameter_desc(entry, weight_dims_), type_);
        forward_desc_ =
            first_as_fast(make, {{input.desc, arena, flat}, {free.data, arena, flat}, {input.desc, free.weights, flat}}, free);
    }
    source_ = compiler.as_layout(input, forward_desc_.src_desc());
    weights_ = compiler.parameter_value(entry, weight_dims_);
    result_ = compiler.new_value(plain_desc(compiler.dims(op_), result_type_));
    Arguments arguments{{DNNL_ARG_SRC, source_},
                        {DNNL_ARG_WEIGHTS, compiler.value_as(weights_, forward_desc_.weights_desc())},
                        {DNNL_ARG_DST, compiler.view(result_, flat)}};
    if (fc_.bias) arguments.emplace_back(DNNL_ARG_BIAS, compiler.parameter_value(entry + 1, {fc_.out_features}));
    compiler.run<Forward>(forward_desc_, arguments);
    compiler.keep(source_);
    if (compiler.has_fused_relu(op_)) compiler.keep(result_);
    compiler.set_output(op_, result_);
    compiler.set_gradient_desc(op_, plain_desc(compiler.dims(op_), type_));
    if (compiler.planning()) plan_weight_layout(compiler);
}

void FullyConnectedPlan::backward(Compiler& compiler) {
    const Value gradient =
        compiler.has_fused_relu(op_) ? compiler.take_gradient_through_relu(op_, result_).value : compiler.take_gradient(op_).value;
    const Value flat = compiler.view(gradient, flat_desc(compiler, type_));
    backward_weights(compiler, flat);
    compiler.entries_done(op_);
    if (compiler.needs_gradient(input_)) backward_data(compiler, flat);
}

void FullyConnectedPlan::backward_weights(Compiler& compiler, const Value& gradient) {
    const size_t entry = compiler.first_entry(op_);
    const MemoryDesc any_weights = any_desc(weight_dims_, Type::f32);
    const Layouts free{any_desc(compiler.dims(input_), type_), any_weights, gradient.desc};
    const MemoryDesc arena = compiler.parameter_desc(entry, weight_dims_);
    const auto make = [&](const Layouts& layouts) { return make_backward_weights(compiler, layouts); };
    const auto desc = first_as_fast(make, {{source_.desc, arena, gradient.desc}, {source_.desc, any_weights, gradient.desc}}, free);
    std::vector<GradientOutput> outputs{{DNNL_ARG_DIFF_WEIGHTS, entry, desc.diff_weights_desc()}};
    if (fc_.bias) outputs.push_back({DNNL_ARG_DIFF_BIAS, entry + 1, bias_desc()});
    compiler.run_into_gradients<BackwardWeights>(
        desc, {{DNNL_ARG_SRC, compiler.as_layout(source_, desc.src_desc())}, {DNNL_ARG_DIFF_DST, gradient}}, outputs);
}

void FullyConnectedPlan::backward_data(Compiler& compiler, const Value& gradient) {
    const MemoryDesc wanted = compiler.gradient_desc(input_);
    const MemoryDesc any_weights = any_desc(weight_dims_, type_);
    const Layouts free{any_desc(compiler.dims(input_), type_), any_weights, gradient.desc};
    const MemoryDesc arena = with_type(weights_.desc, type_);
    const auto make = [&](const Layouts& layouts) { return make_backward_data(compiler, layouts); };
    const auto desc = first_as_fast(make, {{wanted, arena, gradient.desc}, {wanted, any_weights, gradient.desc}}, free);
    const Value result = compiler.new_value(desc.diff_src_desc());
    compiler.run<BackwardData>(desc, {{DNNL_ARG_DIFF_DST, gradient},
                                      {DNNL_ARG_WEIGHTS, compiler.value_as(weights_, desc.weights_desc())},
                                      {DNNL_ARG_DIFF_SRC, result}});
    compiler.contribute(input_, result);
}

}  // namespace

std::unique_ptr<OpPlan> make_fully_connected(int op, const FullyConnectedOp& fc) {
    return std::make_unique<FullyConnectedPlan>(op, fc);
}

}  // namespace lockstep::onednn
