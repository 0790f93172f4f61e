// A network as data: a static DAG of operations described by plain structs. Builders in `models/` make it, backends compile it.
//
// Tensors are (N, C, H, W); a fully connected layer's output is (N, C, 1, 1). An op names its inputs by index of earlier ops, so
// `ops` is a topological order. Op 0 is the input, the last op is the loss. Earlier losses are auxiliary heads: training minimises
// the weighted sum of all losses, evaluation computes the last one only.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/parameter_arena.h"

namespace lockstep {

struct InputOp {
    int64_t channels = 3, height = 224, width = 224;
};
struct ConvOp {
    int64_t out_channels = 0;
    int64_t kernel_h = 1, kernel_w = 1;
    int64_t stride_h = 1, stride_w = 1;
    int64_t pad_h = 0, pad_w = 0;            // zeros, both sides
    int64_t dilation_h = 1, dilation_w = 1;  // 1 means none (PyTorch's convention)
    int64_t groups = 1;
    bool bias = false;
    Initializer weight_init;  // usually MSRA: normal, sqrt(2 / fan)
    Initializer bias_init;
};
// The convolution's transpose, as PyTorch's ConvTranspose2d. Output size: (input - 1) * stride - 2 * pad + kernel + output_pad.
struct DeconvOp {
    int64_t out_channels = 0;
    int64_t kernel_h = 1, kernel_w = 1;
    int64_t stride_h = 1, stride_w = 1;
    int64_t pad_h = 0, pad_w = 0;                // taken off the output, on both sides
    int64_t output_pad_h = 0, output_pad_w = 0;  // added below and right; smaller than the stride
    int64_t groups = 1;
    bool bias = false;
    Initializer weight_init, bias_init;
};
struct BatchNormOp {
    float epsilon = 1e-5F;
    float scale_init = 1.0F;  // 0 for the last batch norm of a residual block ("zero-init")
    bool affine = true;       // false: no scale and shift, Caffe's layer
    float keep = 0.9F;        // of the running statistics: Caffe's moving average fraction, 1 - PyTorch's momentum
};
// Local response normalisation across channels, as in Caffe, PyTorch and ONNX:
//   y[c] = x[c] / (k + alpha / size * sum of x[c']^2)^beta over the `size` channels c' around c.
// The AlexNet paper does not divide by the size (section 3.3: k 2, size 5, alpha 1e-4, beta 0.75): give alpha * size for that.
struct LrnOp {
    int64_t size = 5;  // odd
    float alpha = 1e-4F, beta = 0.75F, k = 1.0F;
};
struct ReluOp {};
struct LeakyReluOp {
    float slope = 0.01F;
};
struct SigmoidOp {};
struct PoolOp {
    enum class Kind : uint8_t { max, average } kind = Kind::max;
    int64_t kernel_h = 2, kernel_w = 2, stride_h = 2, stride_w = 2, pad_h = 0, pad_w = 0;
    bool ceil_mode = false;  // Caffe's output size rule; the last window must start inside the input or its left padding
    // average: divide by the window's part inside the padded input (true: Caffe, PyTorch's default) or inside the input (false).
    // Without padding both are the clipped window.
    bool count_padding = false;
};
struct GlobalAveragePoolOp {};  // (N, C, H, W) -> (N, C, 1, 1)
struct AddOp {};                // two inputs of one shape
struct ConcatOp {};             // along channels
struct FullyConnectedOp {       // flattens its input
    int64_t out_features = 0;
    bool bias = true;
    Initializer weight_init;
    Initializer bias_init;
};
struct DropoutOp {
    float probability = 0.5F;  // of dropping; survivors are scaled by 1 / (1 - probability) in training
};
// Option A of the CIFAR ResNets: subsample by `stride`, pad channels with zeros on both sides up to `out_channels`.
struct PadShortcutOp {
    int64_t out_channels = 0;
    int64_t stride = 2;
};
struct SoftmaxCrossEntropyOp {  // input (N, classes, 1, 1); loss per image, natural logarithm
    // target = (1 - s) on the label + s / classes everywhere; in training and evaluation. Of a mixture the first part is shared out
    // between its two labels.
    float label_smoothing = 0.0F;
    float weight = 1.0F;  // of this loss in the sum; 1 for the last
};

using OpAttributes = std::variant<InputOp, ConvOp, BatchNormOp, ReluOp, LeakyReluOp, SigmoidOp, PoolOp, GlobalAveragePoolOp, AddOp,
                                  ConcatOp, FullyConnectedOp, DropoutOp, PadShortcutOp, SoftmaxCrossEntropyOp, LrnOp, DeconvOp>;

struct Op {
    std::string name;  // unique; prefix of its parameters' names: "layer1.0.conv1"
    OpAttributes attributes;
    std::vector<int> inputs;  // indices of earlier ops
};

struct Graph {
    std::string name;
    std::vector<Op> ops;

    const InputOp& input() const { return std::get<InputOp>(ops.front().attributes); }
    // Appends and returns the new op's index. Convenience for builders.
    int add(std::string op_name, OpAttributes attributes, std::vector<int> inputs);
};

// Checks the structure and the shapes; throws ConfigError naming the op. Backends may rely on a validated graph.
void validate(const Graph& graph);

struct FeatureShape {  // per image
    int64_t channels = 0, height = 0, width = 0;
    int64_t count() const { return channels * height * width; }
    bool operator==(const FeatureShape&) const = default;
};
// Output shape of each op, index by index; the loss has {1, 1, 1}. Throws ConfigError naming the op and both shapes.
std::vector<FeatureShape> infer_shapes(const Graph& graph);

int64_t class_count(const Graph& graph);  // channels into the loss

// Per op: does the last loss depend on it? The others belong to auxiliary heads, which evaluation leaves out.
std::vector<bool> ops_of_last_loss(const Graph& graph);

// The parameters of an op, in the order weight, bias / scale, shift (where affine), running mean, running variance. Names follow
// torchvision: ".weight", ".bias", ".running_mean", ".running_var". Empty for most ops.
std::vector<ParameterSpec> op_parameters(const Graph& graph, int op);

// All parameters in the order in which backward finishes them: ops from last to first.
struct ParameterOwner {
    int op = 0;
    ParameterSpec spec;
};
std::vector<ParameterOwner> backward_order(const Graph& graph);

int64_t forward_macs_per_image(const Graph& graph);  // multiply-adds of conv, deconv and fully connected; without auxiliary heads
std::vector<int64_t> forward_macs_by_op(const Graph& graph);

}  // namespace lockstep
