#include "models/models.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/nearest.h"
#include "models/alexnet/alexnet.h"
#include "models/cifar10_full/cifar10_full.h"
#include "models/googlenet/googlenet.h"
#include "models/inception_v3/inception_v3.h"
#include "models/mnist_cnn/mnist_cnn.h"
#include "models/resnet/resnet.h"
#include "models/resnet_cifar/resnet_cifar.h"
#include "models/tiny/tiny.h"
#include "models/vgg/vgg.h"

namespace lockstep {

namespace {

struct Model {
    std::string_view name;
    Graph (*build)(const ModelOptions&);         // with the variant resolved
    std::array<std::string_view, 3> variants{};  // the default first; empty: none
};

template <int layers>
Graph resnet(const ModelOptions& options) {
    return build_resnet(options, layers);
}
template <int layers>
Graph resnet_cifar(const ModelOptions& options) {
    return build_resnet_cifar(options, layers);
}

template <int layers>
Graph vgg(const ModelOptions& options) {
    return build_vgg(options, layers);
}

constexpr std::array<Model, 19> kModels{{{"resnet18", resnet<18>},
                                         {"resnet34", resnet<34>},
                                         {"resnet50", resnet<50>, {"v1.5", "v1"}},
                                         {"resnet101", resnet<101>, {"v1.5", "v1"}},
                                         {"resnet152", resnet<152>, {"v1.5", "v1"}},
                                         {"alexnet", build_alexnet, {"one_tower", "grouped"}},
                                         {"vgg_a", vgg<11>, {"plain", "bn"}},
                                         {"vgg16", vgg<16>, {"plain", "bn"}},
                                         {"googlenet", build_googlenet, {"bn", "bn_no_aux", "lrn"}},
                                         {"inception_v3", build_inception_v3, {"aux", "no_aux"}},
                                         {"cifar10_full_sigmoid_bn", build_cifar10_full_sigmoid_bn},
                                         {"resnet20", resnet_cifar<20>},
                                         {"resnet32", resnet_cifar<32>},
                                         {"resnet44", resnet_cifar<44>},
                                         {"resnet56", resnet_cifar<56>},
                                         {"resnet110", resnet_cifar<110>},
                                         {"mnist_cnn", build_mnist_cnn},
                                         {"tiny_cnn", build_tiny_cnn},
                                         {"tiny_bn", build_tiny_bn}}};

const Model& find_model(std::string_view name) {
    for (const Model& model : kModels) {
        if (model.name == name) return model;
    }
    const std::string nearest = nearest_name(name, model_names());
    throw ConfigError(fmt::format("unknown model '{}'{}; models: {}", name,
                                  nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest),
                                  fmt::join(model_names(), ", ")));
}

std::vector<std::string> variants_of(const Model& model) {
    std::vector<std::string> variants;
    for (const std::string_view variant : model.variants) {
        if (!variant.empty()) variants.emplace_back(variant);
    }
    return variants;
}

std::string resolved_variant(const Model& model, const std::string& wanted) {
    const std::vector<std::string> known = variants_of(model);
    if (wanted == "auto") return known.empty() ? "" : known.front();
    if (std::ranges::find(known, wanted) != known.end()) return wanted;
    throw ConfigError(known.empty()
                          ? fmt::format("model {} has no variants; remove '{}'", model.name, wanted)
                          : fmt::format("model {} has no variant '{}'; use {}", model.name, wanted, fmt::join(known, " or ")));
}

void require_sizes(const ModelOptions& options) {
    if (options.num_classes < 1 || options.image_size < 1 || options.channels < 1) {
        throw ConfigError(fmt::format("model {}: classes ({}), image size ({}) and channels ({}) must be at least 1", options.arch,
                                      options.num_classes, options.image_size, options.channels));
    }
    if (!(options.dropout >= 0.0F && options.dropout < 1.0F)) {
        throw ConfigError(fmt::format("model {}: dropout must be in [0, 1), not {}", options.arch, options.dropout));
    }
}

}  // namespace

std::vector<std::string> model_names() {
    std::vector<std::string> names;
    for (const Model& model : kModels) names.emplace_back(model.name);
    return names;
}

std::vector<std::string> model_variants(std::string_view arch) { return variants_of(find_model(arch)); }

Graph build_model(const ModelOptions& options) {
    const Model& model = find_model(options.arch);
    ModelOptions resolved = options;
    resolved.variant = resolved_variant(model, options.variant);
    require_sizes(options);
    return model.build(resolved);
}

}  // namespace lockstep
