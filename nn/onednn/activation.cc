// ReLU on its own, leaky ReLU, sigmoid and dropout.
#include <functional>
#include <numeric>

#include "nn/onednn/kernels/sigmoid.h"
#include "nn/onednn/op_plans.h"
#include "nn/onednn/steps.h"

namespace lockstep::onednn {

namespace {

using Forward = dnnl::eltwise_forward;
using Backward = dnnl::eltwise_backward;

bool differentiates_from_result(dnnl::algorithm algorithm) {
    return algorithm == dnnl::algorithm::eltwise_relu_use_dst_for_bwd ||
           algorithm == dnnl::algorithm::eltwise_logistic_use_dst_for_bwd;
}

// Without padding, whose zeros a sigmoid would not keep.
bool is_dense(const MemoryDesc& desc) {
    const dnnl::memory::dims dims = desc.dims();
    return physical_count(desc) == std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

class SigmoidStep final : public Step {
public:
    SigmoidStep(Value out, Value a) : out_(std::move(out)), a_(std::move(a)), count_(physical_count(out_.desc)) {}
    void run(const RunContext& /*context*/) override { sigmoid(out_.operand(), a_.operand(), count_); }
    std::string_view name() const override { return "sigmoid"; }

private:
    Value out_, a_;
    int64_t count_;
};

class ActivationPlan final : public OpPlan {
public:
    ActivationPlan(int op, dnnl::algorithm algorithm, float alpha) : OpPlan(op), algorithm_(algorithm), alpha_(alpha) {}

    void forward(Compiler& compiler) override {
        input_ = compiler.op(op_).inputs[0];
        const Value source = compiler.output(input_);
        if (compiler.applies_sigmoid(input_)) {
            compiler.set_output(op_, source);
            return;
        }
        const auto phase = compiler.training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
        forward_desc_ = {{phase, algorithm_, source.desc, alpha_, 0.0F}, Compiler::attributes(), compiler.library().engine};
        if (!differentiates_from_result(algorithm_)) compiler.keep(source);
        const Value result = compiler.may_overwrite(source) ? source : compiler.new_value(source.desc);
        if (algorithm_ == dnnl::algorithm::eltwise_logistic_use_dst_for_bwd && is_dense(source.desc)) {
            compiler.add_step(std::make_unique<SigmoidStep>(result, source), {&result, &source});
        } else {
            compiler.run<Forward>(forward_desc_, {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, result}});
        }
        if (differentiates_from_result(algorithm_)) compiler.keep(result);
        data_ = differentiates_from_result(algorithm_) ? result : source;
        compiler.set_output(op_, result);
    }

    void backward(Compiler& compiler) override {
        if (compiler.applies_sigmoid(input_)) {
            compiler.pass_gradients(op_, input_);
            return;
        }
        const Gradient gradient = compiler.take_gradient(op_);
        const Value result = gradient.exclusive ? gradient.value : compiler.new_value(gradient.value.desc);
        const Backward::primitive_desc desc({algorithm_, gradient.value.desc, data_.desc, alpha_, 0.0F}, Compiler::attributes(),
                                            compiler.library().engine, forward_desc_);
        const int data_slot = differentiates_from_result(algorithm_) ? DNNL_ARG_DST : DNNL_ARG_SRC;
        compiler.run<Backward>(desc, {{data_slot, data_}, {DNNL_ARG_DIFF_DST, gradient.value}, {DNNL_ARG_DIFF_SRC, result}});
        compiler.contribute(input_, result);
    }

private:
    dnnl::algorithm algorithm_;
    float alpha_;
    int input_ = 0;
    Forward::primitive_desc forward_desc_;
    Value data_;
};

// An op whose producer does its work: the same tensor under a second name.
class FusedAwayPlan final : public OpPlan {
public:
    FusedAwayPlan(int op, int input) : OpPlan(op), input_(input) {}
    void forward(Compiler& compiler) override { compiler.set_output(op_, compiler.output(input_)); }
    void backward(Compiler& compiler) override { compiler.pass_gradients(op_, input_); }

private:
    int input_;
};

// The factors are made in plain order, which every backend shares, then brought into the tensor's layout.
class DropoutPlan final : public OpPlan {
public:
    DropoutPlan(int op, const DropoutOp& dropout) : OpPlan(op), dropout_(dropout) {}

    void forward(Compiler& compiler) override {
        input_ = compiler.op(op_).inputs[0];
        const Value source = compiler.output(input_);
        if (!compiler.training()) {
            compiler.set_output(op_, source);
            return;
        }
        const Value plain = compiler.new_value(plain_desc(compiler.dims(op_), dnnl::memory::data_type::f32));
        compiler.add_step(std::make_unique<DropoutFactorsStep>(plain, op_, dropout_.probability), {&plain});
        factors_ = compiler.as_layout(plain, with_type(source.desc, dnnl::memory::data_type::f32));
        const Value result = compiler.may_overwrite(source) ? source : compiler.new_value(source.desc);
        compiler.add_step(std::make_unique<MultiplyStep>(result, source, factors_), {&result, &source, &factors_});
        compiler.set_output(op_, result);
    }

    void backward(Compiler& compiler) override {
        const Gradient gradient = compiler.take_gradient(op_);
        const Value result = gradient.exclusive ? gradient.value : compiler.new_value(gradient.value.desc);
        compiler.add_step(std::make_unique<MultiplyStep>(result, gradient.value, factors_), {&result, &gradient.value, &factors_});
        compiler.contribute(input_, result);
    }

private:
    DropoutOp dropout_;
    int input_ = 0;
    Value factors_;
};

}  // namespace

std::unique_ptr<OpPlan> make_activation(int op, dnnl::algorithm algorithm, float alpha) {
    return std::make_unique<ActivationPlan>(op, algorithm, alpha);
}

std::unique_ptr<OpPlan> make_fused_away(int op, int input) { return std::make_unique<FusedAwayPlan>(op, input); }

std::unique_ptr<OpPlan> make_dropout(int op, const DropoutOp& dropout) { return std::make_unique<DropoutPlan>(op, dropout); }

}  // namespace lockstep::onednn
