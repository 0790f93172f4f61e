#include "models/googlenet/googlenet.h"

#include <algorithm>

#include "models/graph_builder.h"

namespace lockstep {

namespace {

constexpr float kAuxiliaryWeight = 0.3F, kAuxiliaryDropout = 0.7F;
constexpr LrnOp kNorm{.size = 5, .alpha = 1e-4F, .beta = 0.75F, .k = 1.0F};

// Output channels of a block's branches: 1x1; 1x1 then 3x3; 1x1 then 5x5; pool then 1x1 (table 1 of the paper).
struct Widths {
    int64_t one, three_reduce, three, five_reduce, five, pool;
};

class GoogLeNetBuilder {
public:
    explicit GoogLeNetBuilder(const ModelOptions& options)
        : builder_(options, {.epsilon = 1e-3F}),
          classes_(options.num_classes),
          is_paper_(options.variant == "lrn"),
          has_heads_(options.variant != "bn_no_aux") {}

    Graph build() {
        int top = stem();
        top = block("inception3a", top, {64, 96, 128, 16, 32, 32});
        top = block("inception3b", top, {128, 128, 192, 32, 96, 64});
        top = shrink("maxpool3", top, 3);
        top = block("inception4a", top, {192, 96, 208, 16, 48, 64});
        if (has_heads_) head("aux1", top);
        top = block("inception4b", top, {160, 112, 224, 24, 64, 64});
        top = block("inception4c", top, {128, 128, 256, 24, 64, 64});
        top = block("inception4d", top, {112, 144, 288, 32, 64, 64});
        if (has_heads_) head("aux2", top);
        top = block("inception4e", top, {256, 160, 320, 32, 128, 128});
        top = shrink("maxpool4", top, is_paper_ ? 3 : 2);
        top = block("inception5a", top, {256, 160, 320, 32, 128, 128});
        top = block("inception5b", top, {384, 192, 384, 48, 128, 128});
        top = builder_.global_average_pool("avgpool", top);
        top = builder_.own_dropout("dropout", top, is_paper_ ? 0.4F : 0.2F);
        return builder_.finish(fully_connected("fc", top, classes_, 0.0F));
    }

private:
    int stem() {
        int top = shrink("maxpool1", conv("conv1", 0, {.out_channels = 64, .kernel = 7, .stride = 2, .pad = 3}), 3);
        if (is_paper_) top = builder_.lrn("norm1", top, kNorm);
        top = conv("conv2", top, {.out_channels = 64});
        top = conv("conv3", top, {.out_channels = 192, .kernel = 3, .pad = 1});
        if (is_paper_) top = builder_.lrn("norm2", top, kNorm);
        return shrink("maxpool2", top, 3);
    }

    // The paper's convolutions have a bias, torchvision's a batch norm.
    int conv(const std::string& name, int from, const GraphBuilder::Conv& conv) {
        ConvOp op{.out_channels = conv.out_channels,
                  .kernel_h = conv.kernel,
                  .kernel_w = conv.kernel,
                  .stride_h = conv.stride,
                  .stride_w = conv.stride,
                  .pad_h = conv.pad,
                  .pad_w = conv.pad,
                  .bias = is_paper_,
                  .weight_init = is_paper_ ? xavier_init() : gaussian_init(0.01F),
                  .bias_init = constant_init(0.2F)};
        int top = builder_.convolution(name + ".conv", from, op);
        if (!is_paper_) top = builder_.batch_norm(name + ".bn", top);
        return builder_.relu(name + ".relu", top);
    }

    int fully_connected(const std::string& name, int from, int64_t features, float bias) {
        return builder_.fully_connected(name, from,
                                        FullyConnectedOp{.out_features = features,
                                                         .weight_init = is_paper_ ? xavier_init() : gaussian_init(0.01F),
                                                         .bias_init = constant_init(is_paper_ ? bias : 0.0F)});
    }

    int shrink(const std::string& name, int from, int64_t kernel) {
        return builder_.pool(name, from, {.kernel_h = kernel, .kernel_w = kernel, .stride_h = 2, .stride_w = 2, .ceil_mode = true});
    }

    int block(const std::string& name, int from, const Widths& widths) {
        const int one = conv(name + ".branch1", from, {.out_channels = widths.one});
        int three = conv(name + ".branch2.0", from, {.out_channels = widths.three_reduce});
        three = conv(name + ".branch2.1", three, {.out_channels = widths.three, .kernel = 3, .pad = 1});
        const int64_t kernel = is_paper_ ? 5 : 3;
        int five = conv(name + ".branch3.0", from, {.out_channels = widths.five_reduce});
        five = conv(name + ".branch3.1", five, {.out_channels = widths.five, .kernel = kernel, .pad = kernel / 2});
        int pool = builder_.max_pool(name + ".branch4.0", from, 3, 1, 1);
        pool = conv(name + ".branch4.1", pool, {.out_channels = widths.pool});
        return builder_.concat(name, {one, three, five, pool});
    }

    // Small maps are pooled to one pixel.
    void head(const std::string& name, int from) {
        const FeatureShape map = builder_.shape(from);
        int top = builder_.pool(name + ".pool", from,
                                {.kind = PoolOp::Kind::average,
                                 .kernel_h = std::min<int64_t>(5, map.height),
                                 .kernel_w = std::min<int64_t>(5, map.width),
                                 .stride_h = 3,
                                 .stride_w = 3});
        top = conv(name + ".conv", top, {.out_channels = 128});
        top = builder_.relu(name + ".relu", fully_connected(name + ".fc1", top, 1024, 0.2F));
        top = builder_.own_dropout(name + ".dropout", top, kAuxiliaryDropout);
        builder_.auxiliary_loss(name + ".loss", fully_connected(name + ".fc2", top, classes_, 0.0F), kAuxiliaryWeight);
    }

    GraphBuilder builder_;
    int64_t classes_;
    bool is_paper_, has_heads_;
};

}  // namespace

Graph build_googlenet(const ModelOptions& options) { return GoogLeNetBuilder(options).build(); }

}  // namespace lockstep
