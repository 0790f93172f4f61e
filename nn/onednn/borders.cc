// The two ends of a network: images in, losses out.
#include "nn/onednn/op_plans.h"
#include "nn/onednn/steps.h"

namespace lockstep::onednn {

namespace {

// Copies the images, so the caller's batch may be refilled after forward, into the layout and type of their first consumer.
class InputPlan final : public OpPlan {
public:
    using OpPlan::OpPlan;

    void forward(Compiler& compiler) override {
        const Library& library = compiler.library();
        const MemoryDesc plain = plain_desc(compiler.dims(op_), dnnl::memory::data_type::f32);
        const Value result = compiler.new_value(
            compiler.wanted_by_consumer(op_).value_or(plain_desc(compiler.dims(op_), library.activation_type())));
        const Value images{dnnl::memory(plain, library.engine, DNNL_MEMORY_NONE), plain, Value::kElsewhere};
        const dnnl::reorder::primitive_desc desc(library.engine, plain, library.engine, result.desc, Compiler::attributes());
        Arguments arguments{{DNNL_ARG_FROM, images}, {DNNL_ARG_TO, result}};
        const MemoryDesc scratch_desc = desc.scratchpad_desc();
        const Value scratch = compiler.new_value(scratch_desc);
        if (scratch_desc.get_size() > 0) arguments.emplace_back(DNNL_ARG_SCRATCHPAD, scratch);
        compiler.add_step(std::make_unique<InputStep>(library.stream, dnnl::reorder(desc), images, arguments),
                          {&result, &images, &scratch});
        compiler.set_output(op_, result);
    }

    void backward(Compiler& /*compiler*/) override {}
};

class LossPlan final : public OpPlan {
public:
    LossPlan(int op, const SoftmaxCrossEntropyOp& loss) : OpPlan(op), loss_(loss) {}

    void forward(Compiler& compiler) override {
        input_ = compiler.op(op_).inputs[0];
        const size_t rows = static_cast<size_t>(compiler.batch());
        const size_t classes = static_cast<size_t>(compiler.shape(input_).channels);
        state_ = &compiler.add_loss();
        LossState& state = *state_;
        state.smoothing = loss_.label_smoothing;
        state.weight = loss_.weight;
        state.labels.resize(rows);
        state.second_labels.resize(rows);
        state.losses.resize(rows);
        state.logits.resize(rows * classes);
        plain_ = plain_desc(compiler.dims(input_), dnnl::memory::data_type::f32);
        const Value logits = compiler.as_layout(compiler.output(input_), plain_);
        compiler.add_step(std::make_unique<LossStep>(state, logits), {&logits});
        compiler.set_output(op_, logits);
    }

    void backward(Compiler& compiler) override {
        const Value gradient = compiler.new_value(plain_);
        compiler.add_step(std::make_unique<LossGradientStep>(*state_, gradient), {&gradient});
        compiler.contribute(input_, gradient);
    }

private:
    SoftmaxCrossEntropyOp loss_;
    int input_ = 0;
    LossState* state_ = nullptr;  // the compiled program's
    MemoryDesc plain_;
};

}  // namespace

std::unique_ptr<OpPlan> make_input(int op) { return std::make_unique<InputPlan>(op); }

std::unique_ptr<OpPlan> make_loss(int op, const SoftmaxCrossEntropyOp& loss) { return std::make_unique<LossPlan>(op, loss); }

}  // namespace lockstep::onednn
