#include "models/mnist_cnn/mnist_cnn.h"

#include <cmath>

#include <fmt/format.h>

#include "core/error.h"
#include "models/graph_builder.h"

namespace lockstep {

Graph build_mnist_cnn(const ModelOptions& options) {
    constexpr int64_t kHiddenFeatures = 128;
    if (options.dropout > 0.0F) {
        throw ConfigError(fmt::format("model {} has dropout of its own; remove model.dropout ({})", options.arch, options.dropout));
    }
    GraphBuilder builder(options);
    int top = builder.conv("conv1", 0, {.out_channels = 32, .kernel = 3, .bias = true});
    top = builder.relu("relu1", top);
    top = builder.max_pool("pool1", top, 2, 2);
    top = builder.conv("conv2", top, {.out_channels = 64, .kernel = 3, .bias = true});
    top = builder.relu("relu2", top);
    top = builder.max_pool("pool2", top, 2, 2);
    top = builder.dropout("dropout1", top, 0.25F);
    // MSRA over the fan-out of the hidden layer, so its activations keep the scale of the convolutions'.
    top = builder.fully_connected("fc1", top, kHiddenFeatures, std::sqrt(2.0F / static_cast<float>(kHiddenFeatures * 10)));
    top = builder.relu("relu3", top);
    top = builder.dropout("dropout2", top, 0.5F);
    return builder.finish(builder.fully_connected("fc2", top, options.num_classes, 0.01F));
}

}  // namespace lockstep
