#include "nn/graph.h"

#include <array>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "nn/dropout.h"
#include "nn/metrics.h"
#include "tests/unit/nn/network_cases.h"

namespace lockstep::testing_support {
namespace {

FeatureShape shape_after(const InputOp& input, const OpAttributes& op) { return infer_shapes(graph_with(input, "op", op)).at(1); }

// The message of the ConfigError that `graph` earns.
std::string refusal(const Graph& graph) {
    try {
        validate(graph);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(Shapes, ConvolutionCountsWholeWindows) {
    const InputOp input{.channels = 4, .height = 7, .width = 10};
    EXPECT_EQ(shape_after(input, ConvOp{.out_channels = 6, .kernel_h = 3, .kernel_w = 3}), (FeatureShape{6, 5, 8}));
    EXPECT_EQ(shape_after(input, ConvOp{.out_channels = 6, .kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 3, .pad_h = 1}),
              (FeatureShape{6, 4, 3}));
    EXPECT_EQ(
        shape_after(input, ConvOp{.out_channels = 4, .kernel_h = 3, .kernel_w = 3, .dilation_h = 3, .dilation_w = 2, .groups = 2}),
        (FeatureShape{4, 1, 6}));
}

TEST(Shapes, CeilModeAddsAWindowOnlyIfItStartsInsideTheInputOrItsLeftPadding) {
    const InputOp six{.channels = 1, .height = 6, .width = 6};
    EXPECT_EQ(shape_after(six, PoolOp{.kernel_h = 3, .kernel_w = 3}), (FeatureShape{1, 2, 2}));
    EXPECT_EQ(shape_after(six, PoolOp{.kernel_h = 3, .kernel_w = 3, .ceil_mode = true}), (FeatureShape{1, 3, 3}));
    // The fourth window would start at 7 - 1 = 6, right of the input.
    const PoolOp padded{.kernel_h = 2, .kernel_w = 2, .stride_h = 3, .stride_w = 3, .pad_h = 1, .pad_w = 1, .ceil_mode = true};
    EXPECT_EQ(shape_after({.channels = 1, .height = 5, .width = 5}, padded), (FeatureShape{1, 2, 2}));
    EXPECT_EQ(shape_after({.channels = 1, .height = 4, .width = 4},
                          PoolOp{.kernel_h = 1, .kernel_w = 1, .stride_h = 3, .stride_w = 3, .ceil_mode = true}),
              (FeatureShape{1, 2, 2}));
}

TEST(Shapes, ShortcutPadsChannelsAndSubsamplesFromTheFirstPixel) {
    EXPECT_EQ(shape_after({.channels = 3, .height = 5, .width = 8}, PadShortcutOp{.out_channels = 8, .stride = 2}),
              (FeatureShape{8, 3, 4}));
}

TEST(Validate, ImpossibleOpsAreRefusedByName) {
    const InputOp input{.channels = 3, .height = 6, .width = 6};
    const std::vector<std::pair<OpAttributes, std::string>> bad{
        {ConvOp{.out_channels = 4, .kernel_h = 7, .kernel_w = 3}, "kernel covers 7"},
        {ConvOp{.out_channels = 4, .groups = 2}, "groups"},
        {ConvOp{.out_channels = 0}, "at least 1"},
        {ConvOp{.out_channels = 4, .stride_h = 0}, "stride"},
        {ConvOp{.out_channels = 4, .pad_w = -1}, "padding"},
        {PoolOp{.kernel_h = 2, .kernel_w = 2, .pad_h = 2, .pad_w = 0}, "padding must be smaller"},
        {DropoutOp{.probability = 1.0F}, "probability"},
        {BatchNormOp{.epsilon = 0.0F}, "epsilon"},
        {LeakyReluOp{.slope = std::numeric_limits<float>::quiet_NaN()}, "slope"},
        {PadShortcutOp{.out_channels = 2}, "pad the channels"},
        {FullyConnectedOp{.out_features = 0}, "output features"},
    };
    for (const auto& [attributes, reason] : bad) {
        const std::string message = refusal(graph_with(input, "the_op", attributes));
        EXPECT_THAT(message, ::testing::HasSubstr(reason));
        EXPECT_THAT(message, ::testing::HasSubstr("the_op"));
    }
}

TEST(Validate, BrokenStructureIsRefused) {
    const InputOp input{.channels = 3, .height = 6, .width = 6};
    const Graph good = graph_with(input, "relu", ReluOp{});
    EXPECT_EQ(refusal(good), "accepted");
    Graph graph = good;
    graph.ops[1].inputs = {2};
    EXPECT_THAT(refusal(graph), ::testing::HasSubstr("not an earlier op"));
    graph = good;
    graph.ops[2].name = "relu";
    EXPECT_THAT(refusal(graph), ::testing::HasSubstr("this name"));
    graph = good;
    graph.ops[2].inputs = {0};
    EXPECT_THAT(refusal(graph), ::testing::HasSubstr("not used"));
    graph = good;
    graph.ops[1].inputs = {0, 0};
    EXPECT_THAT(refusal(graph), ::testing::HasSubstr("needs 1 input"));
    graph = good;
    graph.ops.pop_back();
    EXPECT_THAT(refusal(graph), ::testing::HasSubstr("loss"));
    graph = good;
    graph.ops.erase(graph.ops.begin());
    EXPECT_NE(refusal(graph), "accepted");
    EXPECT_NE(refusal(Graph{}), "accepted");
    graph = good;
    graph.ops[3].inputs = {1};
    graph.ops.erase(graph.ops.begin() + 2);
    graph.ops[2].inputs = {1};
    EXPECT_THAT(refusal(graph), ::testing::HasSubstr("one value per class"));
}

TEST(Validate, JoinsWantMatchingShapes) {
    Graph graph{.name = "join"};
    graph.add("input", InputOp{.channels = 3, .height = 6, .width = 6}, {});
    graph.add("conv", ConvOp{.out_channels = 5}, {0});
    graph.add("pool", PoolOp{}, {0});
    graph.add("join", AddOp{}, {0, 1});
    EXPECT_THROW(infer_shapes(graph), ConfigError);
    graph.ops.back().attributes = ConcatOp{};
    EXPECT_EQ(infer_shapes(graph).back(), (FeatureShape{8, 6, 6}));
    graph.ops.back().inputs = {0, 2};
    EXPECT_THROW(infer_shapes(graph), ConfigError);
}

TEST(Parameters, FollowTheOpInFixedOrderAndTheOpsFromLastToFirst) {
    const Graph graph = graph_with({.channels = 3, .height = 2, .width = 2}, "bn", BatchNormOp{.scale_init = 0.5F});
    std::vector<std::string> names;
    for (const ParameterOwner& owner : backward_order(graph)) names.push_back(owner.spec.name);
    EXPECT_EQ(names,
              (std::vector<std::string>{"fc.weight", "fc.bias", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}));
    EXPECT_EQ(op_parameters(graph, 1).front().init.value, 0.5F);
    EXPECT_EQ(op_parameters(graph, 2).front().shape, (Shape{5, 12}));
    EXPECT_TRUE(op_parameters(graph, 0).empty());
    EXPECT_EQ(class_count(graph), 5);
}

TEST(DropoutFactors, DropAShareAndKeepTheMean) {
    std::vector<float> factors(100000);
    fill_dropout_factors(7, 3, 0.25F, 0, factors);
    const auto dropped = std::ranges::count(factors, 0.0F);
    EXPECT_NEAR(static_cast<double>(dropped), 25000, 5 * 137);  // five standard deviations
    EXPECT_EQ(std::ranges::count(factors, 1.0F / 0.75F), 100000 - dropped);
}

TEST(DropoutFactors, DoNotDependOnHowTheRangeIsCut) {
    std::vector<float> whole(1001), cut(1001), other(1001);
    fill_dropout_factors(7, 3, 0.5F, 10, whole);
    const std::span<float> parts(cut);
    fill_dropout_factors(7, 3, 0.5F, 10, parts.first(333));
    fill_dropout_factors(7, 3, 0.5F, 343, parts.subspan(333));
    EXPECT_EQ(cut, whole);
    fill_dropout_factors(7, 4, 0.5F, 10, other);
    EXPECT_NE(other, whole);
    fill_dropout_factors(8, 3, 0.5F, 10, other);
    EXPECT_NE(other, whole);
}

TEST(TopK, CountsLabelsAmongTheLargestAndBreaksTiesByClass) {
    const std::array<float, 8> logits{1, 3, 2, 0, 5, 5, 5, 5};
    const std::array<int32_t, 2> first{1, 0}, second{2, 1}, none{-1, 3};
    EXPECT_EQ(count_top_k(logits, first, 4, 1), 2);
    EXPECT_EQ(count_top_k(logits, second, 4, 1), 0);
    EXPECT_EQ(count_top_k(logits, second, 4, 2), 2);
    EXPECT_EQ(count_top_k(logits, none, 4, 3), 0);
    EXPECT_EQ(count_top_k(logits, none, 4, 5), 1) << "with k >= classes every image counts, but not an empty slot";
}

TEST(TopK, ANaNIsNeverRight) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::array<float, 3> logits{nan, nan, nan};
    const std::array<int32_t, 1> label{0};
    EXPECT_EQ(count_top_k(logits, label, 3, 1), 0);
}

}  // namespace
}  // namespace lockstep::testing_support
