// The networks of the classic papers: sizes and work as published, order of layers, first values.
#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "models/models.h"

namespace lockstep {
namespace {

int64_t learned(const Graph& graph) {
    int64_t count = 0;
    for (const ParameterOwner& owner : backward_order(graph)) {
        if (is_trainable(owner.spec.kind)) count += element_count(owner.spec.shape);
    }
    return count;
}

double giga_macs(const Graph& graph) { return static_cast<double>(forward_macs_per_image(graph)) / 1e9; }

std::map<std::string, ParameterSpec> specs_of(const Graph& graph) {
    std::map<std::string, ParameterSpec> specs;
    for (const ParameterOwner& owner : backward_order(graph)) specs[owner.spec.name] = owner.spec;
    return specs;
}

FeatureShape shape_of(const Graph& graph, const std::string& op_name) {
    const auto op = std::ranges::find(graph.ops, op_name, &Op::name);
    EXPECT_NE(op, graph.ops.end()) << op_name;
    return infer_shapes(graph).at(static_cast<size_t>(op - graph.ops.begin()));
}

void expect_shapes(const Graph& graph, const std::map<std::string, Shape>& expected) {
    const std::map<std::string, ParameterSpec> specs = specs_of(graph);
    for (const auto& [name, shape] : expected) {
        ASSERT_TRUE(specs.contains(name)) << name;
        EXPECT_EQ(specs.at(name).shape, shape) << name;
    }
}

Graph usual(const std::string& arch, const std::string& variant = "auto", int64_t image_size = 224) {
    return build_model({.arch = arch, .variant = variant, .image_size = image_size});
}

TEST(Cifar10Full, HasTheLayersOfCaffesFile) {
    const Graph graph = build_model({.arch = "cifar10_full_sigmoid_bn", .num_classes = 10, .image_size = 32});
    EXPECT_EQ(learned(graph), 89'450);
    // conv1 2.458, conv2 6.554, conv3 3.277, ip1 0.010 million.
    EXPECT_EQ(forward_macs_per_image(graph), 2'457'600 + 6'553'600 + 3'276'800 + 10'240);
    std::vector<std::string> names;
    for (const Op& op : graph.ops) names.push_back(op.name);
    EXPECT_EQ(names, (std::vector<std::string>{"input", "conv1", "pool1", "bn1", "Sigmoid1", "conv2", "bn2", "Sigmoid2", "pool2",
                                               "conv3", "bn3", "Sigmoid3", "pool3", "ip1", "loss"}));
    EXPECT_EQ(shape_of(graph, "pool1"), (FeatureShape{32, 16, 16}));
    EXPECT_EQ(shape_of(graph, "pool2"), (FeatureShape{32, 8, 8}));
    EXPECT_EQ(shape_of(graph, "pool3"), (FeatureShape{64, 4, 4}));
}

TEST(Cifar10Full, HasCaffesFirstValuesAndStatistics) {
    const Graph graph = build_model({.arch = "cifar10_full_sigmoid_bn", .num_classes = 10, .image_size = 32});
    const std::map<std::string, ParameterSpec> specs = specs_of(graph);
    EXPECT_FALSE(specs.contains("conv1.bias"));
    EXPECT_FALSE(specs.contains("bn1.weight"));
    EXPECT_EQ(specs.at("conv1.weight").init.value, 1e-4F);
    EXPECT_EQ(specs.at("conv2.weight").init.value, 0.01F);
    EXPECT_EQ(specs.at("ip1.bias").init.value, 0.0F);
    EXPECT_EQ(specs.at("bn2.running_mean").keep, 0.999F);
    const Graph other =
        build_model({.arch = "cifar10_full_sigmoid_bn", .num_classes = 10, .image_size = 32, .bn_epsilon = 1e-3F, .bn_keep = 0.5F});
    EXPECT_EQ(specs_of(other).at("bn2.running_mean").keep, 0.5F);
    EXPECT_EQ(std::get<BatchNormOp>(other.ops[3].attributes).epsilon, 1e-3F);
}

TEST(AlexNet, OneTowerIsTorchvisions) {
    const Graph graph = usual("alexnet");
    EXPECT_EQ(learned(graph), 61'100'840);
    EXPECT_NEAR(giga_macs(graph), 0.71, 0.01);
    expect_shapes(graph, {{"features.0.weight", {64, 3, 11, 11}},
                          {"features.10.bias", {256}},
                          {"classifier.1.weight", {4096, 9216}},
                          {"classifier.6.weight", {1000, 4096}}});
}

TEST(AlexNet, GroupedIsCaffes) {
    for (const int64_t image_size : {224, 227}) {
        const Graph graph = usual("alexnet", "grouped", image_size);
        EXPECT_EQ(learned(graph), 60'965'224) << image_size;
        EXPECT_EQ(shape_of(graph, "pool5"), (FeatureShape{256, 6, 6}));
    }
    expect_shapes(usual("alexnet", "grouped"), {{"conv2.weight", {256, 48, 5, 5}}, {"fc6.weight", {4096, 9216}}});
    EXPECT_EQ(specs_of(usual("alexnet", "grouped")).at("conv2.bias").init.value, 0.1F);
}

TEST(Vgg, ConfigurationsAAndDAreTorchvisions) {
    EXPECT_EQ(learned(usual("vgg_a")), 132'863'336);
    EXPECT_NEAR(giga_macs(usual("vgg_a")), 7.61, 0.01);
    EXPECT_EQ(learned(usual("vgg16")), 138'357'544);
    EXPECT_NEAR(giga_macs(usual("vgg16")), 15.47, 0.01);
    EXPECT_EQ(learned(usual("vgg_a", "bn")), 132'868'840);
    EXPECT_EQ(learned(usual("vgg16", "bn")), 138'365'992);
    expect_shapes(usual("vgg_a"), {{"features.18.weight", {512, 512, 3, 3}}, {"classifier.0.weight", {4096, 25088}}});
    expect_shapes(usual("vgg16"), {{"features.28.bias", {512}}, {"classifier.6.bias", {1000}}});
    expect_shapes(usual("vgg_a", "bn"), {{"features.25.weight", {512, 512, 3, 3}}, {"features.26.running_var", {512}}});
}

TEST(GoogLeNet, HasTorchvisionsParametersWithAndWithoutHeads) {
    EXPECT_EQ(learned(usual("googlenet")), 13'004'888);
    EXPECT_EQ(learned(usual("googlenet", "bn_no_aux")), 6'624'904);
    EXPECT_NEAR(giga_macs(usual("googlenet")), 1.5, 0.05);
    EXPECT_EQ(giga_macs(usual("googlenet")), giga_macs(usual("googlenet", "bn_no_aux")));
    expect_shapes(usual("googlenet"), {{"conv1.conv.weight", {64, 3, 7, 7}},
                                       {"inception3a.branch2.1.bn.running_mean", {128}},
                                       {"inception4e.branch4.1.conv.weight", {128, 528, 1, 1}},
                                       {"inception5b.branch3.1.conv.weight", {128, 48, 3, 3}},
                                       {"aux1.conv.conv.weight", {128, 512, 1, 1}},
                                       {"aux2.fc1.weight", {1024, 2048}},
                                       {"aux2.fc2.bias", {1000}},
                                       {"fc.weight", {1000, 1024}}});
}

TEST(GoogLeNet, ThePapersHasBiasesAndLocalResponseNormalisation) {
    const Graph graph = usual("googlenet", "lrn");
    EXPECT_EQ(learned(graph), 13'378'280);
    EXPECT_NEAR(giga_macs(graph), 1.58, 0.03);
    expect_shapes(graph, {{"inception3a.branch3.1.conv.weight", {32, 16, 5, 5}}, {"conv1.conv.bias", {64}}});
    EXPECT_EQ(shape_of(graph, "norm1"), (FeatureShape{64, 56, 56}));
    EXPECT_EQ(shape_of(graph, "aux1.pool"), (FeatureShape{512, 4, 4}));
    EXPECT_EQ(shape_of(graph, "maxpool4"), (FeatureShape{832, 7, 7}));
}

TEST(GoogLeNet, HeadsHaveWeightThreeTenths) {
    std::map<std::string, float> weights;
    for (const Op& op : usual("googlenet").ops) {
        if (const auto* loss = std::get_if<SoftmaxCrossEntropyOp>(&op.attributes)) weights[op.name] = loss->weight;
    }
    EXPECT_EQ(weights, (std::map<std::string, float>{{"aux1.loss", 0.3F}, {"aux2.loss", 0.3F}, {"loss", 1.0F}}));
}

TEST(InceptionV3, HasTorchvisionsParameters) {
    EXPECT_EQ(learned(usual("inception_v3", "aux", 299)), 27'161'264);
    const Graph graph = usual("inception_v3", "no_aux", 299);
    EXPECT_EQ(learned(graph), 23'834'568);
    EXPECT_NEAR(giga_macs(graph), 5.71, 0.02);
    EXPECT_EQ(shape_of(graph, "Mixed_5d"), (FeatureShape{288, 35, 35}));
    EXPECT_EQ(shape_of(graph, "Mixed_6e"), (FeatureShape{768, 17, 17}));
    EXPECT_EQ(shape_of(graph, "Mixed_7c"), (FeatureShape{2048, 8, 8}));
    expect_shapes(usual("inception_v3", "aux", 299), {{"Conv2d_1a_3x3.conv.weight", {32, 3, 3, 3}},
                                                      {"Mixed_6b.branch7x7_2.conv.weight", {128, 128, 1, 7}},
                                                      {"Mixed_7b.branch3x3dbl_3b.bn.weight", {384}},
                                                      {"AuxLogits.conv1.conv.weight", {768, 128, 5, 5}},
                                                      {"AuxLogits.fc.weight", {1000, 768}},
                                                      {"fc.bias", {1000}}});
}

TEST(ClassicModels, DropoutIsTheOptionsWhereTheyGiveOne) {
    const auto probabilities = [](const ModelOptions& options) {
        std::multiset<float> found;
        for (const Op& op : build_model(options).ops) {
            if (const auto* dropout = std::get_if<DropoutOp>(&op.attributes)) found.insert(dropout->probability);
        }
        return found;
    };
    EXPECT_EQ(probabilities({.arch = "vgg16"}), (std::multiset<float>{0.5F, 0.5F}));
    EXPECT_EQ(probabilities({.arch = "vgg16", .dropout = 0.25F}), (std::multiset<float>{0.25F, 0.25F}));
    EXPECT_EQ(probabilities({.arch = "googlenet"}), (std::multiset<float>{0.2F, 0.7F, 0.7F}));
    EXPECT_EQ(probabilities({.arch = "googlenet", .variant = "lrn"}), (std::multiset<float>{0.4F, 0.7F, 0.7F}));
}

}  // namespace
}  // namespace lockstep
