// The networks by name. Every builder returns a validated Graph ending in softmax cross-entropy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/graph.h"

namespace lockstep {

struct ModelOptions {
    std::string arch = "resnet50";  // one of model_names()
    std::string variant = "auto";   // one of model_variants(arch); auto: the first
    int64_t num_classes = 1000;
    int64_t image_size = 224;  // height = width
    int64_t channels = 3;
    bool zero_init_last_bn = true;  // scale 0 in the last batch norm of each residual block
    float label_smoothing = 0.0F;
    std::optional<float> bn_epsilon, bn_keep;  // of all batch norms; empty: the network's own
    float dropout = 0.0F;                      // 0: the network's own
};

// resnet18 34 50 101 152, resnet20 32 44 56 110 (32x32, parameter-free shortcuts), alexnet, vgg_a, vgg16, googlenet, inception_v3,
// cifar10_full_sigmoid_bn, mnist_cnn, tiny_cnn (two small convolutions without batch norm, for tests and smoke runs), tiny_bn.
std::vector<std::string> model_names();
// The default first; empty for a network that has one form only. Throws ConfigError for an unknown name.
std::vector<std::string> model_variants(std::string_view arch);
// Throws ConfigError for an unknown name (with the nearest) or a size the network cannot take.
Graph build_model(const ModelOptions& options);

}  // namespace lockstep
