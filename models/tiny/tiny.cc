#include "models/tiny/tiny.h"

#include <fmt/format.h>

#include "core/error.h"
#include "models/graph_builder.h"

namespace lockstep {

namespace {

constexpr int64_t kSmallestImage = 8;
constexpr float kLastLayerStddev = 0.1F;

void require_image_size(const ModelOptions& options) {
    if (options.image_size < kSmallestImage) {
        throw ConfigError(fmt::format("model {} needs images of at least {}x{}; image_size is {}", options.arch, kSmallestImage,
                                      kSmallestImage, options.image_size));
    }
}

Graph finish_with_classifier(GraphBuilder& builder, int top, const ModelOptions& options) {
    top = builder.global_average_pool("avgpool", top);
    if (options.dropout > 0.0F) top = builder.dropout("dropout", top, options.dropout);
    return builder.finish(builder.fully_connected("fc", top, options.num_classes, kLastLayerStddev));
}

}  // namespace

Graph build_tiny_cnn(const ModelOptions& options) {
    require_image_size(options);
    GraphBuilder builder(options);
    int top = builder.conv("conv1", 0, {.out_channels = 8, .kernel = 3, .pad = 1, .bias = true});
    top = builder.relu("relu1", top);
    top = builder.max_pool("pool1", top, 2, 2);
    top = builder.conv("conv2", top, {.out_channels = 16, .kernel = 3, .pad = 1, .bias = true});
    top = builder.relu("relu2", top);
    return finish_with_classifier(builder, top, options);
}

Graph build_tiny_bn(const ModelOptions& options) {
    require_image_size(options);
    GraphBuilder builder(options);
    int stem = builder.conv("conv1", 0, {.out_channels = 8, .kernel = 3, .stride = 2, .pad = 1});
    stem = builder.relu("relu1", builder.batch_norm("bn1", stem));
    int top = builder.conv("conv2", stem, {.out_channels = 8, .kernel = 3, .pad = 1});
    top = builder.batch_norm("bn2", top, options.zero_init_last_bn ? 0.0F : 1.0F);
    top = builder.relu("relu2", builder.add("add", top, stem));
    return finish_with_classifier(builder, top, options);
}

}  // namespace lockstep
