#include "nn/onednn/steps.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "nn/dropout.h"
#include "nn/onednn/kernels/loss.h"
#include "nn/onednn/kernels/parallel.h"

namespace lockstep::onednn {

namespace {

float* floats(const Value& value) { return static_cast<float*>(value.memory.get_data_handle()); }

LossTargets targets_of(const LossState& state) {
    return {.labels = state.labels,
            .second_labels = state.second_labels,
            .second_share = state.second_share,
            .smoothing = state.smoothing};
}

}  // namespace

AddStep::AddStep(Value out, Value a, Value b)
    : out_(std::move(out)), a_(std::move(a)), b_(std::move(b)), count_(physical_count(out_.desc)) {
    check(out_.desc == a_.desc && out_.desc == b_.desc, "only tensors of one layout can be added");
}

void AddStep::run(const RunContext& /*context*/) { add(out_.operand(), a_.operand(), b_.operand(), count_); }

AddReluStep::AddReluStep(Value out, Value a, Value b)
    : out_(std::move(out)), a_(std::move(a)), b_(std::move(b)), count_(physical_count(out_.desc)) {
    check(out_.desc == a_.desc && out_.desc == b_.desc, "only tensors of one layout can be added");
}

void AddReluStep::run(const RunContext& /*context*/) { add_relu(out_.operand(), a_.operand(), b_.operand(), count_); }

ReluBackwardStep::ReluBackwardStep(Value out, Value y, Value gradient, std::optional<Value> second)
    : out_(std::move(out)),
      y_(std::move(y)),
      gradient_(std::move(gradient)),
      second_(std::move(second)),
      count_(physical_count(out_.desc)) {
    check(out_.desc == y_.desc && out_.desc == gradient_.desc, "a gradient must have its tensor's layout");
}

void ReluBackwardStep::run(const RunContext& /*context*/) {
    if (second_) {
        relu_backward(out_.operand(), y_.operand(), gradient_.operand(), second_->operand(), count_);
    } else {
        relu_backward(out_.operand(), y_.operand(), gradient_.operand(), count_);
    }
}

GradientStep::GradientStep(GradientWork write, GradientWork add) : write_(std::move(write)), add_(std::move(add)) {}

void GradientStep::run(const RunContext& context) {
    GradientWork& work = context.accumulate ? add_ : write_;
    for (const std::unique_ptr<Step>& step : work.steps) step->run(context);
    for (const GradientWork::Sum& sum : work.sums) add(sum.target.operand(), sum.target.operand(), sum.aside.operand(), sum.count);
}

StatisticsStep::StatisticsStep(Value mean, Value variance, Targets targets, int64_t batch, int64_t values_per_channel)
    : mean_(std::move(mean)),
      variance_(std::move(variance)),
      targets_(std::move(targets)),
      channels_(mean_.desc.dims()[0]),
      mean_scale_(static_cast<float>(batch)),
      variance_scale_(static_cast<float>(static_cast<double>(batch) * static_cast<double>(values_per_channel) /
                                         static_cast<double>(std::max<int64_t>(values_per_channel - 1, 1)))) {}

void StatisticsStep::run(const RunContext& context) {
    scale_into(floats(targets_.mean), floats(mean_), mean_scale_, context.accumulate, channels_);
    scale_into(floats(targets_.variance), floats(variance_), variance_scale_, context.accumulate, channels_);
}

InputStep::InputStep(dnnl::stream stream, dnnl::primitive reorder, Value images, Arguments arguments)
    : images_(std::move(images)), reorder_(std::move(stream), std::move(reorder), std::move(arguments)) {}

void InputStep::run(const RunContext& context) {
    images_.memory.set_data_handle(const_cast<float*>(context.images));  // only read
    reorder_.run(context);
}

LossStep::LossStep(LossState& state, Value logits) : state_(state), logits_(std::move(logits)) {}

void LossStep::run(const RunContext& /*context*/) {
    std::copy_n(floats(logits_), state_.logits.size(), state_.logits.data());
    softmax_losses(state_.logits, targets_of(state_), state_.losses);
}

LossGradientStep::LossGradientStep(const LossState& state, Value gradient) : state_(state), gradient_(std::move(gradient)) {}

void LossGradientStep::run(const RunContext& /*context*/) {
    softmax_gradients(state_.logits, targets_of(state_), state_.weight, floats(gradient_));
}

DropoutFactorsStep::DropoutFactorsStep(Value factors, int op, float probability)
    : factors_(std::move(factors)), op_(op), probability_(probability), count_(physical_count(factors_.desc)) {}

void DropoutFactorsStep::run(const RunContext& context) {
    parallel_ranges(count_, 4096, [&](int64_t begin, int64_t end) {
        fill_dropout_factors(context.dropout_key, op_, probability_, begin,
                             {floats(factors_) + begin, static_cast<size_t>(end - begin)});
    });
}

MultiplyStep::MultiplyStep(Value out, Value a, Value factors)
    : out_(std::move(out)), a_(std::move(a)), factors_(std::move(factors)), count_(physical_count(out_.desc)) {}

void MultiplyStep::run(const RunContext& /*context*/) { multiply(out_.operand(), a_.operand(), floats(factors_), count_); }

PadShortcutStep::PadShortcutStep(const PadShortcut& shape, Direction direction, Value from, Value to)
    : shape_(shape), direction_(direction), from_(std::move(from)), to_(std::move(to)) {}

void PadShortcutStep::run(const RunContext& /*context*/) {
    const void* from = from_.memory.get_data_handle();
    void* to = to_.memory.get_data_handle();
    if (direction_ == Direction::forward) {
        pad_shortcut_forward(shape_, from, to);
    } else {
        pad_shortcut_backward(shape_, from, to);
    }
}

}  // namespace lockstep::onednn
