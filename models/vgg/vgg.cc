#include "models/vgg/vgg.h"

#include <array>
#include <span>

#include <fmt/format.h>

#include "core/error.h"
#include "models/graph_builder.h"

namespace lockstep {

namespace {

constexpr int64_t kPool = 0;  // among widths of convolutions
constexpr std::array<int64_t, 13> kA{64, kPool, 128, kPool, 256, 256, kPool, 512, 512, kPool, 512, 512, kPool};
constexpr std::array<int64_t, 18> kD{64,    64,  kPool, 128, 128,   kPool, 256, 256, 256,
                                     kPool, 512, 512,   512, kPool, 512,   512, 512, kPool};
constexpr float kDropout = 0.5F;
constexpr int64_t kHiddenFeatures = 4096;
constexpr float kClassifierStddev = 0.01F;

std::span<const int64_t> widths_of(int layers) {
    if (layers == 11) return kA;
    check(layers == 16, "a VGG has 11 or 16 layers here");
    return kD;
}

// torchvision numbers all modules of the features in one row: convolution, batch norm, ReLU, pool.
int features(GraphBuilder& builder, std::span<const int64_t> widths, bool batch_norm) {
    int top = 0;
    int number = 0;
    const auto name = [&] { return fmt::format("features.{}", number++); };
    for (const int64_t width : widths) {
        if (width == kPool) {
            top = builder.max_pool(name(), top, 2, 2);
            continue;
        }
        top = builder.conv(name(), top, {.out_channels = width, .kernel = 3, .pad = 1, .bias = true});
        if (batch_norm) top = builder.batch_norm(name(), top);
        top = builder.relu(name(), top);
    }
    return top;
}

}  // namespace

Graph build_vgg(const ModelOptions& options, int layers) {
    GraphBuilder builder(options);
    int top = features(builder, widths_of(layers), options.variant == "bn");
    top = builder.relu("classifier.1", builder.fully_connected("classifier.0", top, kHiddenFeatures, kClassifierStddev));
    top = builder.own_dropout("classifier.2", top, kDropout);
    top = builder.relu("classifier.4", builder.fully_connected("classifier.3", top, kHiddenFeatures, kClassifierStddev));
    top = builder.own_dropout("classifier.5", top, kDropout);
    return builder.finish(builder.fully_connected("classifier.6", top, options.num_classes, kClassifierStddev));
}

}  // namespace lockstep
