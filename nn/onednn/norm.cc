#include "nn/onednn/norm.h"

#include <utility>

#include "core/error.h"
#include "nn/onednn/steps.h"

namespace lockstep::onednn {

namespace {

void* data(const Value& value) { return value.memory.get_data_handle(); }
void* data(const std::optional<Value>& value) { return value ? data(*value) : nullptr; }
float* floats(const Value& value) { return static_cast<float*>(data(value)); }
float* floats(const std::optional<Value>& value) { return static_cast<float*>(data(value)); }
uint8_t* bits(const std::optional<Value>& value) { return static_cast<uint8_t*>(data(value)); }

MemoryDesc bytes_desc(size_t bytes) {
    return {{static_cast<int64_t>(bytes)}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a};
}
MemoryDesc floats_desc(size_t count) {
    return {{static_cast<int64_t>(count)}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a};
}

class NormForwardStep final : public Step {
public:
    NormForwardStep(const NormShape& shape, float epsilon, NormTensors tensors, std::optional<Value> addend, Value result,
                    bool again)
        : shape_(shape),
          epsilon_(epsilon),
          tensors_(std::move(tensors)),
          addend_(std::move(addend)),
          result_(std::move(result)),
          again_(again) {}

    void run(const RunContext& /*context*/) override {
        norm_forward(shape_, {.source = data(tensors_.source),
                              .addend = data(addend_),
                              .result = data(result_),
                              .mask = bits(tensors_.mask),
                              .sigmoid = tensors_.activated.has_value(),
                              .again = again_,
                              .scale = floats(tensors_.scale),
                              .shift = floats(tensors_.shift),
                              .mean = floats(tensors_.mean),
                              .variance = floats(tensors_.variance),
                              .epsilon = epsilon_,
                              .scratch = floats(tensors_.scratch)});
    }
    std::string_view name() const override {
        if (again_) return "batch norm again";
        if (tensors_.activated) return "batch norm, sigmoid";
        return addend_ ? "batch norm, add, ReLU" : tensors_.mask ? "batch norm, ReLU" : "batch norm";
    }

private:
    NormShape shape_;
    float epsilon_;
    NormTensors tensors_;
    std::optional<Value> addend_;
    Value result_;
    bool again_;
};

struct NormGradients {
    Value gradient;
    std::optional<Value> second, passed;
    Value source_gradient;
    std::optional<Value> scale_gradient, shift_gradient;
};

class NormBackwardStep final : public Step {
public:
    NormBackwardStep(const NormShape& shape, float epsilon, NormTensors tensors, NormGradients gradients)
        : shape_(shape), epsilon_(epsilon), tensors_(std::move(tensors)), gradients_(std::move(gradients)) {}

    void run(const RunContext& context) override {
        norm_backward(shape_, {.source = data(tensors_.source),
                               .gradient = data(gradients_.gradient),
                               .second_gradient = data(gradients_.second),
                               .mask = bits(tensors_.mask),
                               .activated = data(tensors_.activated),
                               .passed = data(gradients_.passed),
                               .source_gradient = data(gradients_.source_gradient),
                               .scale = floats(tensors_.scale),
                               .mean = floats(tensors_.mean),
                               .variance = floats(tensors_.variance),
                               .scale_gradient = floats(gradients_.scale_gradient),
                               .shift_gradient = floats(gradients_.shift_gradient),
                               .accumulate = context.accumulate,
                               .epsilon = epsilon_,
                               .scratch = floats(tensors_.scratch)});
    }
    std::string_view name() const override { return "batch norm gradient"; }

private:
    NormShape shape_;
    float epsilon_;
    NormTensors tensors_;
    NormGradients gradients_;
};

void use(std::vector<const Value*>& used, const std::optional<Value>& value) {
    if (value) used.push_back(&*value);
}

}  // namespace

std::optional<NormShape> norm_shape(const MemoryDesc& desc) {
    const std::optional<int64_t> block = channel_block(desc);
    if (!block || desc.dims()[1] % *block != 0) return std::nullopt;
    const dnnl::memory::dims dims = desc.dims();
    return NormShape{.images = dims[0], .channels = dims[1], .pixels = dims[2] * dims[3], .block = *block, .type = core_type(desc)};
}

bool uses_own_norm(const Compiler& compiler, const MemoryDesc& source) {
    return compiler.training() && compiler.library().options.fusion == Fusion::all && norm_shape(source).has_value();
}

std::optional<Value> NormPlan::parameter(Compiler& compiler, Entry entry) const {
    if (!affine_) return std::nullopt;
    return compiler.parameter_value(place(compiler, entry), {shape_.channels});
}

NormTensors NormPlan::tensors_with(Compiler& compiler, const Value& scratch) const {
    return {.source = source_,
            .mean = mean_,
            .variance = variance_,
            .scratch = scratch,
            .scale = parameter(compiler, kScale),
            .shift = parameter(compiler, kShift),
            .mask = mask_,
            .activated = activated_};
}

Value NormPlan::add_forward(Compiler& compiler, const std::optional<Value>& addend, bool relu) {
    mean_ = compiler.new_value(floats_desc(static_cast<size_t>(shape_.channels)), "mean");
    variance_ = compiler.new_value(floats_desc(static_cast<size_t>(shape_.channels)), "variance");
    if (relu) mask_ = compiler.new_value(bytes_desc(shape_.mask_bytes()), "ReLU mask");
    compiler.keep(source_);
    const Value result = addend && compiler.may_overwrite(*addend) ? *addend : compiler.new_value(source_.desc);
    if (compiler.applies_sigmoid(op_)) activated_ = result;
    add_forward_step(compiler, addend, result, false);
    if (!activated_ && compiler.offer_to_remake(result, *this, addend)) addend_ = addend;
    return result;
}

void NormPlan::add_forward_step(Compiler& compiler, const std::optional<Value>& addend, const Value& result, bool again) {
    const Value scratch = compiler.new_value(floats_desc(shape_.scratch_floats()), "sums");
    const NormTensors tensors = tensors_with(compiler, scratch);
    std::vector<const Value*> used{&source_, &result, &mean_, &variance_, &scratch};
    use(used, tensors.scale);
    use(used, tensors.shift);
    use(used, addend);
    use(used, mask_);
    compiler.add_step(std::make_unique<NormForwardStep>(shape_, epsilon_, tensors, addend, result, again), used);
}

Value NormPlan::remake(Compiler& compiler) {
    std::optional<Value> addend;
    if (addend_) addend = compiler.again(*addend_);
    const Value result = compiler.new_value(source_.desc, "output again");
    add_forward_step(compiler, addend, result, true);
    return result;
}

void NormPlan::forward(Compiler& compiler) {
    input_ = compiler.op(op_).inputs[0];
    source_ = compiler.output(input_);
    shape_ = *norm_shape(source_.desc);
    if (compiler.add_after_norm(op_) >= 0) {
        compiler.keep(source_);
        compiler.set_output(op_, source_);  // nobody but the addition reads it, and that knows better
        return;
    }
    if (compiler.feeds_sigmoid_only(op_)) compiler.apply_sigmoid(op_);
    const Value result = add_forward(compiler, std::nullopt, compiler.has_fused_relu(op_));
    if (activated_) compiler.keep(result);
    compiler.set_output(op_, result);
}

Value NormPlan::forward_with(Compiler& compiler, const Value& addend) {
    return add_forward(compiler, compiler.as_layout(addend, source_.desc), true);
}

// The gradients of `from`, through the ReLU, into the batch norm; what the ReLU lets pass goes to the addend too.
std::optional<Value> NormPlan::add_backward(Compiler& compiler, int from, bool wants_passed) {
    GradientParts parts;
    if (activated_) {
        const Gradient whole = compiler.take_gradient(from);
        parts = {.first = whole.value, .first_exclusive = whole.exclusive};
    } else {
        parts = compiler.take_gradient_in_two(from);
    }
    std::vector<Value> free;  // may be overwritten
    if (parts.first_exclusive) free.push_back(parts.first);
    if (parts.second_exclusive) free.push_back(*parts.second);
    const auto next_place = [&] {
        if (free.empty()) return compiler.new_value(source_.desc);
        const Value place = free.front();
        free.erase(free.begin());
        return place;
    };
    NormGradients gradients{.gradient = parts.first, .second = parts.second};
    if (wants_passed) gradients.passed = next_place();
    gradients.source_gradient = next_place();
    if (affine_) {
        gradients.scale_gradient = compiler.parameter_gradient(place(compiler, kScale), {shape_.channels});
        gradients.shift_gradient = compiler.parameter_gradient(place(compiler, kShift), {shape_.channels});
    }
    const Value scratch = compiler.new_value(floats_desc(shape_.scratch_floats()), "sums");
    const NormTensors tensors = tensors_with(compiler, scratch);
    std::vector<const Value*> used{&source_, &gradients.gradient, &gradients.source_gradient, &mean_, &variance_, &scratch};
    use(used, gradients.second);
    use(used, gradients.passed);
    use(used, mask_);
    use(used, activated_);
    compiler.add_step(std::make_unique<NormBackwardStep>(shape_, epsilon_, tensors, gradients), used);
    compiler.contribute(input_, gradients.source_gradient);
    return gradients.passed;
}

Value NormPlan::backward_with(Compiler& compiler, int add, bool addend_wants_gradient) {
    return add_backward(compiler, add, addend_wants_gradient).value_or(Value{});
}

void NormPlan::backward(Compiler& compiler) {
    if (compiler.add_after_norm(op_) < 0) add_backward(compiler, op_, false);
    finish_parameters(compiler);
}

void NormPlan::finish_parameters(Compiler& compiler) {
    const StatisticsStep::Targets targets{compiler.parameter_gradient(place(compiler, kMean), {shape_.channels}),
                                          compiler.parameter_gradient(place(compiler, kVariance), {shape_.channels})};
    compiler.add_step(std::make_unique<StatisticsStep>(mean_, variance_, targets, shape_.images, shape_.images * shape_.pixels),
                      {&mean_, &variance_});
    compiler.entries_done(op_);
}

}  // namespace lockstep::onednn
