// One op of a compiled graph in the reference backend: plain loops over plain (N, C, H, W) tensors, storage in fp32, sums in
// double.
//
// Every output element is computed by one thread in one fixed order, so results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/parallel.h"
#include "nn/executor.h"
#include "nn/graph.h"

namespace lockstep::reference {

struct Activation {  // (batch, channels, height, width)
    int64_t batch = 0;
    FeatureShape shape;
    std::span<float> value;
    std::span<float> gradient;  // empty: nobody needs it (evaluation, or the images)

    int64_t count() const { return batch * shape.count(); }
    int64_t plane() const { return shape.height * shape.width; }
    bool wants_gradient() const { return !gradient.empty(); }
};

struct Parameter {
    std::span<const float> value;
    std::span<float> gradient;
};

struct NodeContext {
    int op_index = 0;
    Phase phase = Phase::training;
    int threads = 1;
    std::vector<Activation> inputs;
    Activation output;
    std::vector<Parameter> parameters;  // in the order of op_parameters()

    const Activation& input() const { return inputs.front(); }
};

class Node {
public:
    virtual ~Node() = default;
    virtual void forward(const ForwardInput& input) = 0;
    // Adds to the gradients of its inputs (zero before the first consumer) and writes, or adds to, those of its parameters.
    virtual void backward(bool accumulate) = 0;
};

std::unique_ptr<Node> make_input(NodeContext context);
std::unique_ptr<Node> make_convolution(NodeContext context, const ConvOp& op);
std::unique_ptr<Node> make_deconvolution(NodeContext context, const DeconvOp& op);
std::unique_ptr<Node> make_batch_norm(NodeContext context, const BatchNormOp& op);
std::unique_ptr<Node> make_lrn(NodeContext context, const LrnOp& op);
std::unique_ptr<Node> make_leaky_relu(NodeContext context, float slope);  // slope 0: ReLU
std::unique_ptr<Node> make_sigmoid(NodeContext context);
std::unique_ptr<Node> make_dropout(NodeContext context, const DropoutOp& op);
std::unique_ptr<Node> make_pool(NodeContext context, const PoolOp& op);
std::unique_ptr<Node> make_global_average_pool(NodeContext context);
std::unique_ptr<Node> make_add(NodeContext context);
std::unique_ptr<Node> make_concat(NodeContext context);
std::unique_ptr<Node> make_pad_shortcut(NodeContext context, const PadShortcutOp& op);
std::unique_ptr<Node> make_fully_connected(NodeContext context, const FullyConnectedOp& op);
std::unique_ptr<Node> make_softmax_cross_entropy(NodeContext context, const SoftmaxCrossEntropyOp& op);

inline void store(float& slot, double value, bool accumulate) {
    slot = static_cast<float>(accumulate ? static_cast<double>(slot) + value : value);
}
inline void add_to(float& slot, double value) { slot = static_cast<float>(static_cast<double>(slot) + value); }

}  // namespace lockstep::reference
