#include "models/alexnet/alexnet.h"

#include <cmath>

#include "models/graph_builder.h"

namespace lockstep {

namespace {

constexpr float kDropout = 0.5F;
constexpr int64_t kHiddenFeatures = 4096;

struct Conv {
    int64_t out_channels, kernel, stride = 1, pad = 0, groups = 1;
};

ConvOp conv_op(const Conv& conv, const Initializer& weights, const Initializer& bias) {
    ConvOp op = GraphBuilder::Conv{conv.out_channels, conv.kernel, conv.stride, conv.pad, true, conv.groups}.op();
    op.weight_init = weights;
    op.bias_init = bias;
    return op;
}

// PyTorch's default: weights and biases uniform within 1 / sqrt(fan-in).
class OneTower {
public:
    explicit OneTower(const ModelOptions& options) : builder_(options) {}

    Graph build(const ModelOptions& options) {
        int top = conv_relu("features.0", 0, {64, 11, 4, 2});
        top = builder_.max_pool("features.2", top, 3, 2);
        top = conv_relu("features.3", top, {192, 5, 1, 2});
        top = builder_.max_pool("features.5", top, 3, 2);
        top = conv_relu("features.6", top, {384, 3, 1, 1});
        top = conv_relu("features.8", top, {256, 3, 1, 1});
        top = conv_relu("features.10", top, {256, 3, 1, 1});
        top = builder_.max_pool("features.12", top, 3, 2);
        top = builder_.own_dropout("classifier.0", top, kDropout);
        top = builder_.relu("classifier.2", fully_connected("classifier.1", top, kHiddenFeatures));
        top = builder_.own_dropout("classifier.3", top, kDropout);
        top = builder_.relu("classifier.5", fully_connected("classifier.4", top, kHiddenFeatures));
        return builder_.finish(fully_connected("classifier.6", top, options.num_classes));
    }

private:
    // A bias's own shape does not tell the fan-in.
    static Initializer bias_init(double fan_in) { return uniform_init(static_cast<float>(1.0 / std::sqrt(fan_in))); }

    int conv_relu(const std::string& name, int from, const Conv& conv) {
        const auto fan_in = static_cast<double>(builder_.channels(from) * conv.kernel * conv.kernel);
        return builder_.relu(name + ".relu",
                             builder_.convolution(name, from, conv_op(conv, torch_default_init(), bias_init(fan_in))));
    }

    int fully_connected(const std::string& name, int from, int64_t features) {
        return builder_.fully_connected(
            name, from,
            FullyConnectedOp{.out_features = features,
                             .weight_init = torch_default_init(),
                             .bias_init = bias_init(static_cast<double>(builder_.shape(from).count()))});
    }

    GraphBuilder builder_;
};

// Pools of Caffe's ceil rule; first values of bvlc_alexnet.
class Grouped {
public:
    explicit Grouped(const ModelOptions& options) : builder_(options) {}

    Graph build(const ModelOptions& options) {
        int top = conv_relu("conv1", 0, {96, 11, 4}, 0.0F);
        top = pool("pool1", builder_.lrn("norm1", top, kNorm));
        top = conv_relu("conv2", top, {256, 5, 1, 2, 2}, 0.1F);
        top = pool("pool2", builder_.lrn("norm2", top, kNorm));
        top = conv_relu("conv3", top, {384, 3, 1, 1}, 0.0F);
        top = conv_relu("conv4", top, {384, 3, 1, 1, 2}, 0.1F);
        top = conv_relu("conv5", top, {256, 3, 1, 1, 2}, 0.1F);
        top = hidden("6", pool("pool5", top));
        top = hidden("7", top);
        return builder_.finish(builder_.fully_connected("fc8", top, options.num_classes, 0.01F));
    }

private:
    static constexpr LrnOp kNorm{.size = 5, .alpha = 1e-4F, .beta = 0.75F, .k = 1.0F};

    int conv_relu(const std::string& name, int from, const Conv& conv, float bias) {
        return builder_.relu(name + ".relu",
                             builder_.convolution(name, from, conv_op(conv, gaussian_init(0.01F), constant_init(bias))));
    }

    int pool(const std::string& name, int from) {
        return builder_.pool(name, from, {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .ceil_mode = true});
    }

    int hidden(const std::string& number, int from) {
        const FullyConnectedOp layer{
            .out_features = kHiddenFeatures, .weight_init = gaussian_init(0.005F), .bias_init = constant_init(0.1F)};
        const int top = builder_.relu("relu" + number, builder_.fully_connected("fc" + number, from, layer));
        return builder_.own_dropout("drop" + number, top, kDropout);
    }

    GraphBuilder builder_;
};

}  // namespace

Graph build_alexnet(const ModelOptions& options) {
    return options.variant == "grouped" ? Grouped(options).build(options) : OneTower(options).build(options);
}

}  // namespace lockstep
