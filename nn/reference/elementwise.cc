// Ops that treat every element alone: the input copy, ReLU and leaky ReLU, sigmoid, dropout.
#include <algorithm>
#include <cmath>
#include <utility>

#include "nn/dropout.h"
#include "nn/reference/node.h"

namespace lockstep::reference {

namespace {

class Input final : public Node {
public:
    explicit Input(NodeContext context) : context_(std::move(context)) {}
    void forward(const ForwardInput& input) override { std::ranges::copy(input.images, context_.output.value.begin()); }
    void backward(bool /*accumulate*/) override {}

private:
    NodeContext context_;
};

class LeakyRelu final : public Node {
public:
    LeakyRelu(NodeContext context, float slope) : context_(std::move(context)), slope_(slope) {}

    void forward(const ForwardInput& /*input*/) override {
        parallel_for(context_.threads, context_.output.count(), [&](int64_t index) {
            const auto element = static_cast<size_t>(index);
            const float value = context_.input().value[element];
            // The comparison lets NaN pass through, so a broken network stays visible; 0 * -inf must not make one.
            const float below = slope_ == 0.0F ? 0.0F : slope_ * value;
            context_.output.value[element] = value <= 0.0F ? below : value;
        });
    }

    void backward(bool /*accumulate*/) override {
        if (!context_.input().wants_gradient()) return;
        parallel_for(context_.threads, context_.output.count(), [&](int64_t index) {
            const auto element = static_cast<size_t>(index);
            const float factor = context_.input().value[element] > 0.0F ? 1.0F : slope_;
            context_.input().gradient[element] += factor * context_.output.gradient[element];
        });
    }

private:
    NodeContext context_;
    float slope_;
};

class Sigmoid final : public Node {
public:
    explicit Sigmoid(NodeContext context) : context_(std::move(context)) {}

    void forward(const ForwardInput& /*input*/) override {
        parallel_for(context_.threads, context_.output.count(), [&](int64_t index) {
            const auto element = static_cast<size_t>(index);
            context_.output.value[element] =
                static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(context_.input().value[element]))));
        });
    }

    void backward(bool /*accumulate*/) override {
        if (!context_.input().wants_gradient()) return;
        parallel_for(context_.threads, context_.output.count(), [&](int64_t index) {
            const auto element = static_cast<size_t>(index);
            const double value = context_.output.value[element];
            add_to(context_.input().gradient[element], value * (1.0 - value) * context_.output.gradient[element]);
        });
    }

private:
    NodeContext context_;
};

class Dropout final : public Node {
public:
    Dropout(NodeContext context, const DropoutOp& op)
        : context_(std::move(context)),
          probability_(op.probability),
          factors_(static_cast<size_t>(context_.output.count()), 1.0F) {}

    void forward(const ForwardInput& input) override {
        // In evaluation every factor stays 1.
        if (context_.phase == Phase::training) {
            fill_dropout_factors(input.dropout_key, context_.op_index, probability_, 0, factors_);
        }
        for (size_t element = 0; element < factors_.size(); ++element) {
            context_.output.value[element] = factors_[element] * context_.input().value[element];
        }
    }

    void backward(bool /*accumulate*/) override {
        if (!context_.input().wants_gradient()) return;
        for (size_t element = 0; element < factors_.size(); ++element) {
            context_.input().gradient[element] += factors_[element] * context_.output.gradient[element];
        }
    }

private:
    NodeContext context_;
    float probability_;
    std::vector<float> factors_;
};

}  // namespace

std::unique_ptr<Node> make_input(NodeContext context) { return std::make_unique<Input>(std::move(context)); }

std::unique_ptr<Node> make_leaky_relu(NodeContext context, float slope) {
    return std::make_unique<LeakyRelu>(std::move(context), slope);
}

std::unique_ptr<Node> make_sigmoid(NodeContext context) { return std::make_unique<Sigmoid>(std::move(context)); }

std::unique_ptr<Node> make_dropout(NodeContext context, const DropoutOp& op) {
    return std::make_unique<Dropout>(std::move(context), op);
}

}  // namespace lockstep::reference
