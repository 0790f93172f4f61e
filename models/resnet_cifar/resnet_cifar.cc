#include "models/resnet_cifar/resnet_cifar.h"

#include <fmt/format.h>

#include "core/error.h"
#include "models/graph_builder.h"

namespace lockstep {

namespace {

constexpr int kStages = 3;
constexpr int64_t kFirstWidth = 16;
constexpr float kLastLayerStddev = 0.01F;

int conv_bn(GraphBuilder& builder, const std::string& prefix, const std::string& number, int from, int64_t width, int64_t stride,
            float scale_init) {
    const int conv = builder.conv(prefix + "conv" + number, from, {.out_channels = width, .kernel = 3, .stride = stride, .pad = 1});
    return builder.batch_norm(prefix + "bn" + number, conv, scale_init);
}

int basic_block(GraphBuilder& builder, const std::string& name, int from, int64_t width, int64_t stride, float last_scale) {
    const std::string prefix = name + ".";
    int main = conv_bn(builder, prefix, "1", from, width, stride, 1.0F);
    main = builder.relu(prefix + "relu1", main);
    main = conv_bn(builder, prefix, "2", main, width, 1, last_scale);
    const bool same_shape = stride == 1 && builder.channels(from) == width;
    const int shortcut = same_shape ? from : builder.pad_shortcut(prefix + "shortcut", from, width, stride);
    return builder.relu(prefix + "relu_out", builder.add(prefix + "add", main, shortcut));
}

}  // namespace

Graph build_resnet_cifar(const ModelOptions& options, int layers) {
    check(layers >= 8 && (layers - 2) % 6 == 0, "a CIFAR ResNet has 6n + 2 layers");
    const int blocks_per_stage = (layers - 2) / 6;
    const float last_scale = options.zero_init_last_bn ? 0.0F : 1.0F;
    GraphBuilder builder(options);
    int top = builder.relu("relu", conv_bn(builder, "", "1", 0, kFirstWidth, 1, 1.0F));
    for (int stage = 0; stage < kStages; ++stage) {
        for (int block = 0; block < blocks_per_stage; ++block) {
            const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
            top = basic_block(builder, fmt::format("layer{}.{}", stage + 1, block), top, kFirstWidth << stage, stride, last_scale);
        }
    }
    top = builder.global_average_pool("avgpool", top);
    if (options.dropout > 0.0F) top = builder.dropout("dropout", top, options.dropout);
    return builder.finish(builder.fully_connected("fc", top, options.num_classes, kLastLayerStddev));
}

}  // namespace lockstep
