#include "models/models.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

struct Count {
    int64_t parameters = 0;
    size_t tensors = 0;
};

Count trainable(const Graph& graph) {
    Count count;
    for (const ParameterOwner& owner : backward_order(graph)) {
        if (!is_trainable(owner.spec.kind)) continue;
        count.parameters += element_count(owner.spec.shape);
        ++count.tensors;
    }
    return count;
}

const ParameterSpec* find(const std::vector<ParameterOwner>& owners, const std::string& name) {
    const auto found = std::ranges::find(owners, name, [](const ParameterOwner& owner) { return owner.spec.name; });
    return found == owners.end() ? nullptr : &found->spec;
}

FeatureShape shape_of(const Graph& graph, const std::string& op_name) {
    const auto op = std::ranges::find(graph.ops, op_name, &Op::name);
    EXPECT_NE(op, graph.ops.end()) << op_name;
    return infer_shapes(graph).at(static_cast<size_t>(op - graph.ops.begin()));
}

Graph cifar(const std::string& arch) { return build_model({.arch = arch, .num_classes = 10, .image_size = 32}); }

TEST(Models, ImageNetResNetsHaveTorchvisionsParameterCounts) {
    EXPECT_EQ(trainable(build_model({.arch = "resnet18"})).parameters, 11'689'512);
    EXPECT_EQ(trainable(build_model({.arch = "resnet34"})).parameters, 21'797'672);
    EXPECT_EQ(trainable(build_model({.arch = "resnet50"})).parameters, 25'557'032);
    EXPECT_EQ(trainable(build_model({.arch = "resnet101"})).parameters, 44'549'160);
    EXPECT_EQ(trainable(build_model({.arch = "resnet152"})).parameters, 60'192'808);
    EXPECT_EQ(trainable(build_model({.arch = "resnet50"})).tensors, 161U);
}

TEST(Models, CifarResNetsHaveTheParameterCountsOfOptionA) {
    EXPECT_EQ(trainable(cifar("resnet20")).parameters, 269'722);
    EXPECT_EQ(trainable(cifar("resnet32")).parameters, 464'154);
    EXPECT_EQ(trainable(cifar("resnet44")).parameters, 658'586);
    EXPECT_EQ(trainable(cifar("resnet56")).parameters, 853'018);
    EXPECT_EQ(trainable(cifar("resnet110")).parameters, 1'727'962);
}

TEST(Models, ResNet50Takes4Point09GigaMultiplyAddsPerImage) {
    EXPECT_NEAR(static_cast<double>(forward_macs_per_image(build_model({.arch = "resnet50"}))), 4.09e9, 0.01 * 4.09e9);
    EXPECT_NEAR(static_cast<double>(forward_macs_per_image(build_model({.arch = "resnet50", .variant = "v1"}))), 3.8e9,
                0.02 * 3.8e9);
    EXPECT_NEAR(static_cast<double>(forward_macs_per_image(cifar("resnet20"))), 40.8e6, 0.01 * 40.8e6);
}

int64_t smallest_image(const std::string& arch) {
    const std::map<std::string, int64_t> sizes{
        {"alexnet", 63}, {"vgg_a", 32}, {"vgg16", 32}, {"googlenet", 32}, {"inception_v3", 75}};
    const auto own = sizes.find(arch);
    return own == sizes.end() ? 16 : own->second;
}

TEST(Models, EveryModelBuildsForTheSmallestUsefulImage) {
    for (const std::string& arch : model_names()) {
        const Graph graph = build_model({.arch = arch, .num_classes = 3, .image_size = smallest_image(arch), .channels = 1});
        EXPECT_EQ(class_count(graph), 3) << arch;
        EXPECT_EQ(graph.name, arch);
        EXPECT_EQ(graph.input().channels, 1) << arch;
    }
}

TEST(Models, ParameterNamesAreThoseOfTorchvision) {
    const std::vector<ParameterOwner> owners = backward_order(build_model({.arch = "resnet50"}));
    const std::vector<std::pair<std::string, Shape>> expected{{"conv1.weight", {64, 3, 7, 7}},
                                                              {"bn1.running_var", {64}},
                                                              {"layer1.0.conv1.weight", {64, 64, 1, 1}},
                                                              {"layer1.0.downsample.0.weight", {256, 64, 1, 1}},
                                                              {"layer1.0.downsample.1.running_mean", {256}},
                                                              {"layer2.3.bn3.bias", {512}},
                                                              {"layer4.0.conv2.weight", {512, 512, 3, 3}},
                                                              {"layer4.2.conv3.weight", {2048, 512, 1, 1}},
                                                              {"fc.weight", {1000, 2048}},
                                                              {"fc.bias", {1000}}};
    for (const auto& [name, shape] : expected) {
        const ParameterSpec* spec = find(owners, name);
        ASSERT_NE(spec, nullptr) << name;
        EXPECT_EQ(spec->shape, shape) << name;
    }
    EXPECT_EQ(find(owners, "conv1.bias"), nullptr);
    EXPECT_EQ(find(backward_order(build_model({.arch = "resnet18"})), "layer1.0.downsample.0.weight"), nullptr);
    EXPECT_NE(find(backward_order(cifar("resnet20")), "layer3.2.conv2.weight"), nullptr);
    EXPECT_EQ(find(backward_order(cifar("resnet20")), "layer3.0.downsample.0.weight"), nullptr);
}

TEST(Models, BackwardFinishesTheLastLayerFirst) {
    const std::vector<ParameterOwner> owners = backward_order(build_model({.arch = "resnet50"}));
    EXPECT_EQ(owners.front().spec.name, "fc.weight");
    EXPECT_EQ(owners[1].spec.name, "fc.bias");
    EXPECT_EQ(owners.back().spec.name, "conv1.weight");
    std::set<std::string> names;
    for (const ParameterOwner& owner : owners) EXPECT_TRUE(names.insert(owner.spec.name).second) << owner.spec.name;
}

TEST(Models, FeatureMapsShrinkAsInThePaper) {
    const Graph graph = build_model({.arch = "resnet50"});
    EXPECT_EQ(shape_of(graph, "conv1"), (FeatureShape{64, 112, 112}));
    EXPECT_EQ(shape_of(graph, "maxpool"), (FeatureShape{64, 56, 56}));
    EXPECT_EQ(shape_of(graph, "layer1.2.relu_out"), (FeatureShape{256, 56, 56}));
    EXPECT_EQ(shape_of(graph, "layer4.2.relu_out"), (FeatureShape{2048, 7, 7}));
    EXPECT_EQ(shape_of(cifar("resnet20"), "layer3.2.relu_out"), (FeatureShape{64, 8, 8}));
}

TEST(Models, TheVariantPlacesTheStride) {
    EXPECT_EQ(shape_of(build_model({.arch = "resnet50"}), "layer2.0.conv1"), (FeatureShape{128, 56, 56}));
    EXPECT_EQ(shape_of(build_model({.arch = "resnet50", .variant = "v1"}), "layer2.0.conv1"), (FeatureShape{128, 28, 28}));
    EXPECT_THROW(build_model({.arch = "resnet18", .variant = "v1"}), ConfigError);
    EXPECT_THROW(build_model({.arch = "resnet50", .variant = "v2"}), ConfigError);
    EXPECT_EQ(model_variants("resnet50"), (std::vector<std::string>{"v1.5", "v1"}));
    EXPECT_EQ(model_variants("resnet18"), std::vector<std::string>{});
}

TEST(Models, InitialValuesFollowTheRecipe) {
    const std::vector<ParameterOwner> zero = backward_order(build_model({.arch = "resnet50"}));
    const std::vector<ParameterOwner> one = backward_order(build_model({.arch = "resnet50", .zero_init_last_bn = false}));
    EXPECT_EQ(find(zero, "layer3.1.bn3.weight")->init.value, 0.0F);
    EXPECT_EQ(find(zero, "layer3.1.bn2.weight")->init.value, 1.0F);
    EXPECT_EQ(find(zero, "layer3.0.downsample.1.weight")->init.value, 1.0F);
    EXPECT_EQ(find(one, "layer3.1.bn3.weight")->init.value, 1.0F);
    EXPECT_EQ(find(zero, "fc.weight")->init.kind, Initializer::Kind::normal);
    EXPECT_EQ(find(zero, "fc.weight")->init.value, 0.01F);
    EXPECT_EQ(find(zero, "fc.bias")->init.kind, Initializer::Kind::constant);
    EXPECT_NEAR(find(zero, "layer1.0.conv2.weight")->init.value, std::sqrt(2.0 / (9 * 64)), 1e-7);
    EXPECT_NEAR(find(zero, "conv1.weight")->init.value, std::sqrt(2.0 / (49 * 64)), 1e-7);
    EXPECT_EQ(find(zero, "bn1.running_var")->init.value, 1.0F);
    EXPECT_EQ(find(backward_order(build_model({.arch = "resnet18"})), "layer1.0.bn2.weight")->init.value, 0.0F);
    EXPECT_EQ(find(backward_order(cifar("resnet20")), "layer1.0.bn2.weight")->init.value, 0.0F);
}

TEST(Models, OptionsReachTheGraph) {
    const Graph graph =
        build_model({.arch = "resnet20", .num_classes = 7, .label_smoothing = 0.1F, .bn_epsilon = 1e-3F, .dropout = 0.25F});
    EXPECT_EQ(std::get<SoftmaxCrossEntropyOp>(graph.ops.back().attributes).label_smoothing, 0.1F);
    EXPECT_EQ(std::get<BatchNormOp>(graph.ops[2].attributes).epsilon, 1e-3F);
    EXPECT_EQ(std::get<DropoutOp>(graph.ops[graph.ops.size() - 3].attributes).probability, 0.25F);
    EXPECT_THROW(build_model({.arch = "mnist_cnn", .image_size = 28, .dropout = 0.5F}), ConfigError) << "it has dropout of its own";
    EXPECT_THROW(build_model({.arch = "resnet20", .dropout = 1.0F}), ConfigError);
}

TEST(Models, SmallModelsAreSmall) {
    const int64_t tiny = trainable(build_model({.arch = "tiny_cnn", .num_classes = 10, .image_size = 8})).parameters;
    EXPECT_GT(tiny, 1000);
    EXPECT_LT(tiny, 5000);
    EXPECT_LT(forward_macs_per_image(build_model({.arch = "mnist_cnn", .num_classes = 10, .image_size = 28, .channels = 1})),
              3'000'000);
}

TEST(Models, AnUnknownNameIsAnsweredWithTheNearest) {
    try {
        build_model({.arch = "resnet5O"});
        FAIL() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("'resnet50'"));
        EXPECT_THAT(error.what(), HasSubstr("tiny_bn"));
    }
}

TEST(Models, SizesThatDoNotFitAreRefused) {
    EXPECT_THROW(build_model({.arch = "tiny_cnn", .image_size = 7}), ConfigError);
    EXPECT_THROW(build_model({.arch = "mnist_cnn", .image_size = 4}), ConfigError);
    EXPECT_THROW(build_model({.arch = "resnet50", .num_classes = 0}), ConfigError);
    EXPECT_THROW(build_model({.arch = "resnet50", .image_size = 0}), ConfigError);
    EXPECT_THROW(build_model({.arch = "resnet50", .channels = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep
