#include "models/resnet/resnet.h"

#include <array>

#include <fmt/format.h>

#include "core/error.h"
#include "models/graph_builder.h"

namespace lockstep {

namespace {

struct Depth {
    int layers;
    bool bottleneck;
    std::array<int, 4> blocks;
};
constexpr std::array<Depth, 5> kDepths{{{18, false, {2, 2, 2, 2}},
                                        {34, false, {3, 4, 6, 3}},
                                        {50, true, {3, 4, 6, 3}},
                                        {101, true, {3, 4, 23, 3}},
                                        {152, true, {3, 8, 36, 3}}}};
constexpr int64_t kBottleneckExpansion = 4;
constexpr float kLastLayerStddev = 0.01F;

const Depth& depth_of(int layers) {
    for (const Depth& depth : kDepths) {
        if (depth.layers == layers) return depth;
    }
    throw ConfigError(fmt::format("no ResNet with {} layers; use 18, 34, 50, 101 or 152", layers));
}

struct Block {
    std::string name;  // "layer1.0"
    int64_t width = 0;
    int64_t stride = 1;
};

class ResNetBuilder {
public:
    ResNetBuilder(const ModelOptions& options, const Depth& depth)
        : builder_(options),
          bottleneck_(depth.bottleneck),
          stride_on_first_conv_(options.variant == "v1"),
          last_scale_(options.zero_init_last_bn ? 0.0F : 1.0F) {}

    Graph build(const ModelOptions& options, const Depth& depth) {
        int top = builder_.conv("conv1", 0, {.out_channels = 64, .kernel = 7, .stride = 2, .pad = 3});
        top = builder_.batch_norm("bn1", top);
        top = builder_.relu("relu", top);
        top = builder_.max_pool("maxpool", top, 3, 2, 1);
        int64_t width = 64;
        for (size_t stage = 0; stage < depth.blocks.size(); ++stage, width *= 2) {
            for (int index = 0; index < depth.blocks[stage]; ++index) {
                const int64_t stride = stage > 0 && index == 0 ? 2 : 1;
                top = block({fmt::format("layer{}.{}", stage + 1, index), width, stride}, top);
            }
        }
        top = builder_.global_average_pool("avgpool", top);
        if (options.dropout > 0.0F) top = builder_.dropout("dropout", top, options.dropout);
        return builder_.finish(builder_.fully_connected("fc", top, options.num_classes, kLastLayerStddev));
    }

private:
    int block(const Block& block, int from) {
        const int main = bottleneck_ ? bottleneck_branch(block, from) : basic_branch(block, from);
        const int added = builder_.add(block.name + ".add", main, shortcut(block, from, builder_.channels(main)));
        return builder_.relu(block.name + ".relu_out", added);
    }

    int basic_branch(const Block& block, int from) {
        const int first =
            conv_bn_relu(block, "1", from, {.out_channels = block.width, .kernel = 3, .stride = block.stride, .pad = 1});
        return conv_bn(block, "2", first, {.out_channels = block.width, .kernel = 3, .pad = 1}, last_scale_);
    }

    int bottleneck_branch(const Block& block, int from) {
        const int64_t stride_1x1 = stride_on_first_conv_ ? block.stride : 1;
        const int64_t stride_3x3 = stride_on_first_conv_ ? 1 : block.stride;
        int top = conv_bn_relu(block, "1", from, {.out_channels = block.width, .stride = stride_1x1});
        top = conv_bn_relu(block, "2", top, {.out_channels = block.width, .kernel = 3, .stride = stride_3x3, .pad = 1});
        return conv_bn(block, "3", top, {.out_channels = block.width * kBottleneckExpansion}, last_scale_);
    }

    int shortcut(const Block& block, int from, int64_t out_channels) {
        if (block.stride == 1 && builder_.channels(from) == out_channels) return from;
        const int projected =
            builder_.conv(block.name + ".downsample.0", from, {.out_channels = out_channels, .stride = block.stride});
        return builder_.batch_norm(block.name + ".downsample.1", projected);
    }

    int conv_bn(const Block& block, const std::string& number, int from, const GraphBuilder::Conv& conv, float scale_init) {
        const int top = builder_.conv(block.name + ".conv" + number, from, conv);
        return builder_.batch_norm(block.name + ".bn" + number, top, scale_init);
    }

    int conv_bn_relu(const Block& block, const std::string& number, int from, const GraphBuilder::Conv& conv) {
        return builder_.relu(block.name + ".relu" + number, conv_bn(block, number, from, conv, 1.0F));
    }

    GraphBuilder builder_;
    bool bottleneck_;
    bool stride_on_first_conv_;
    float last_scale_;
};

}  // namespace

Graph build_resnet(const ModelOptions& options, int layers) {
    const Depth& depth = depth_of(layers);
    return ResNetBuilder(options, depth).build(options, depth);
}

}  // namespace lockstep
