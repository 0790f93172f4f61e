// Steps that run our own kernels.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "nn/onednn/kernels/pad_shortcut.h"
#include "nn/onednn/loss_state.h"
#include "nn/onednn/program.h"

namespace lockstep::onednn {

// out = a + b, with ReLU on top in AddReluStep. `out` may be a or b.
class AddStep final : public Step {
public:
    AddStep(Value out, Value a, Value b);
    void run(const RunContext& context) override;
    std::string_view name() const override { return "add"; }

private:
    Value out_, a_, b_;
    int64_t count_;
};

class AddReluStep final : public Step {
public:
    AddReluStep(Value out, Value a, Value b);
    void run(const RunContext& context) override;
    std::string_view name() const override { return "add and ReLU"; }

private:
    Value out_, a_, b_;
    int64_t count_;
};

// out = y > 0 ? sum of one or two gradients : 0.
class ReluBackwardStep final : public Step {
public:
    ReluBackwardStep(Value out, Value y, Value gradient, std::optional<Value> second = std::nullopt);
    void run(const RunContext& context) override;
    std::string_view name() const override { return "ReLU gradient"; }

private:
    Value out_, y_, gradient_;
    std::optional<Value> second_;
    int64_t count_;
};

// Parameter gradients of one primitive, written to the arena or added to it.
struct GradientWork {
    struct Sum {
        Value aside;
        Value target;
        int64_t count = 0;
    };
    std::vector<std::unique_ptr<Step>> steps;
    std::vector<Sum> sums;
};

class GradientStep final : public Step {
public:
    GradientStep(GradientWork write, GradientWork add);
    void run(const RunContext& context) override;

private:
    GradientWork write_, add_;
};

// Statistics entries of a batch norm: N * mean and N * unbiased variance (biased when there is one value per channel).
class StatisticsStep final : public Step {
public:
    struct Targets {
        Value mean, variance;  // the arena's gradient slots
    };
    StatisticsStep(Value mean, Value variance, Targets targets, int64_t batch, int64_t values_per_channel);
    void run(const RunContext& context) override;
    std::string_view name() const override { return "batch statistics"; }

private:
    Value mean_, variance_;
    Targets targets_;
    int64_t channels_;
    float mean_scale_, variance_scale_;
};

// Takes the caller's images into the program, in the layout of the first consumer.
class InputStep final : public Step {
public:
    InputStep(dnnl::stream stream, dnnl::primitive reorder, Value images, Arguments arguments);
    void run(const RunContext& context) override;
    std::string_view name() const override { return "images to their layout"; }

private:
    Value images_;
    PrimitiveStep reorder_;
};

class LossStep final : public Step {
public:
    LossStep(LossState& state, Value logits);
    void run(const RunContext& context) override;
    std::string_view name() const override { return "softmax and loss"; }

private:
    LossState& state_;
    Value logits_;
};

class LossGradientStep final : public Step {
public:
    LossGradientStep(const LossState& state, Value gradient);
    void run(const RunContext& context) override;
    std::string_view name() const override { return "softmax and loss gradient"; }

private:
    const LossState& state_;
    Value gradient_;
};

// Fills the factors of a dropout, in plain order of elements.
class DropoutFactorsStep final : public Step {
public:
    DropoutFactorsStep(Value factors, int op, float probability);
    void run(const RunContext& context) override;
    std::string_view name() const override { return "dropout factors"; }

private:
    Value factors_;
    int op_;
    float probability_;
    int64_t count_;
};

// out = a * factors (f32).
class MultiplyStep final : public Step {
public:
    MultiplyStep(Value out, Value a, Value factors);
    void run(const RunContext& context) override;
    std::string_view name() const override { return "multiply"; }

private:
    Value out_, a_, factors_;
    int64_t count_;
};

class PadShortcutStep final : public Step {
public:
    enum class Direction : uint8_t { forward, backward };
    PadShortcutStep(const PadShortcut& shape, Direction direction, Value from, Value to);
    void run(const RunContext& context) override;
    std::string_view name() const override { return "pad shortcut"; }

private:
    PadShortcut shape_;
    Direction direction_;
    Value from_, to_;
};

}  // namespace lockstep::onednn
