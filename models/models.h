// The networks by name. Every builder returns a validated Graph ending in softmax cross-entropy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nn/graph.h"

namespace lockstep {

struct ModelOptions {
    std::string arch = "resnet50";  // one of model_names()
    std::string variant = "v1.5";   // ResNet-50 and deeper: v1.5 (stride on the 3x3) or v1 (stride on the first 1x1)
    int64_t num_classes = 1000;
    int64_t image_size = 224;  // height = width
    int64_t channels = 3;
    bool zero_init_last_bn = true;  // scale 0 in the last batch norm of each residual block
    float label_smoothing = 0.0F;
    float bn_epsilon = 1e-5F;
    float dropout = 0.0F;  // before the last layer, where the model has none of its own
};

// resnet18 34 50 101 152, resnet20 32 44 56 110 (32x32, parameter-free shortcuts), mnist_cnn, tiny_cnn (two small convolutions
// without batch norm, for tests and smoke runs), tiny_bn.
std::vector<std::string> model_names();
// Throws ConfigError for an unknown name (with the nearest) or a size the network cannot take.
Graph build_model(const ModelOptions& options);

}  // namespace lockstep
