// The ops of the classic networks by hand-computed numbers, and networks with several losses.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/backends.h"
#include "tests/support/test_network.h"
#include "tests/unit/nn/network_cases.h"

namespace lockstep::testing_support {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// The images' way through one op: a fully connected layer passes each of its outputs on as a logit.
std::vector<float> output_of(const std::string& backend, const InputOp& input, const OpAttributes& op,
                             const std::vector<float>& image) {
    Graph graph = graph_with(input, "op", op);
    const int64_t count = infer_shapes(graph).at(1).count();
    std::get<FullyConnectedOp>(graph.ops.at(2).attributes).out_features = count;
    TestNetwork network(graph, {.backend = backend, .batch = 1});
    std::vector<float> identity(static_cast<size_t>(count * count), 0.0F);
    for (int64_t row = 0; row < count; ++row) identity[static_cast<size_t>(row * count + row)] = 1.0F;
    network.set_value("fc.weight", identity);
    network.set_value("fc.bias", std::vector<float>(static_cast<size_t>(count), 0.0F));
    if (std::holds_alternative<DeconvOp>(op)) network.set_value("op.weight", {1.0F, 2.0F, 3.0F, 4.0F});
    network.batch().images = image;
    network.batch().labels = {0};
    network.forward();
    const std::span<const float> logits = network.training().logits();
    return {logits.begin(), logits.end()};
}

class ClassicOps : public ::testing::TestWithParam<std::string> {};

TEST_P(ClassicOps, LrnDividesAlphaByItsSize) {
    const InputOp input{.channels = 4, .height = 1, .width = 1};
    const std::vector<float> x{1.0F, 2.0F, 3.0F, 4.0F};
    const auto y = [&](size_t channel, double squares) { return x[channel] / std::pow(2.0 + 0.3 / 3.0 * squares, 0.75); };
    EXPECT_THAT(output_of(GetParam(), input, LrnOp{.size = 3, .alpha = 0.3F, .beta = 0.75F, .k = 2.0F}, x),
                Pointwise(FloatNear(1e-5F), {y(0, 5.0), y(1, 14.0), y(2, 29.0), y(3, 25.0)}));
}

TEST_P(ClassicOps, DeconvolutionSpreadsEachPixelOverItsKernel) {
    const InputOp input{.channels = 1, .height = 1, .width = 2};
    const DeconvOp op{.out_channels = 1, .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 1};
    EXPECT_THAT(output_of(GetParam(), input, op, {1.0F, 10.0F}),
                Pointwise(FloatNear(1e-5F), {1.0F, 12.0F, 20.0F, 3.0F, 34.0F, 40.0F}));
    DeconvOp cut = op;
    cut.pad_w = 1;
    cut.output_pad_h = 1;  // a row that no pixel reaches
    EXPECT_THAT(output_of(GetParam(), input, cut, {1.0F, 10.0F}), Pointwise(FloatNear(1e-5F), {12.0F, 34.0F, 0.0F}));
}

// Caffe's AVE pool: 4 pixels, kernel 3, stride 2: the second window holds two pixels and is divided by two; with padding, by what
// lies in the padded image.
TEST_P(ClassicOps, AveragePoolDividesByTheClippedWindow) {
    const InputOp input{.channels = 1, .height = 1, .width = 4};
    PoolOp pool{.kind = PoolOp::Kind::average, .kernel_h = 1, .kernel_w = 3, .stride_h = 1, .stride_w = 2, .ceil_mode = true};
    const std::vector<float> x{1.0F, 2.0F, 6.0F, 10.0F};
    EXPECT_THAT(output_of(GetParam(), input, pool, x), Pointwise(FloatNear(1e-6F), {3.0F, 8.0F}));
    pool.pad_w = 1;  // windows (0 1 2), (2 6 10), (10 0 beyond)
    pool.count_padding = true;
    EXPECT_THAT(output_of(GetParam(), input, pool, x), Pointwise(FloatNear(1e-6F), {1.0F, 6.0F, 5.0F}));
    pool.count_padding = false;
    EXPECT_THAT(output_of(GetParam(), input, pool, x), Pointwise(FloatNear(1e-6F), {1.5F, 6.0F, 10.0F}));
}

Graph with_head(float weight) {
    Graph graph{.name = "with_head"};
    graph.add("input", InputOp{.channels = 2, .height = 4, .width = 4}, {});
    const int conv = graph.add("conv", ConvOp{.out_channels = 8, .kernel_h = 3, .kernel_w = 3}, {0});
    if (weight > 0.0F) {
        const int logits = graph.add("head", FullyConnectedOp{.out_features = 3}, {conv});
        graph.add("head.loss", SoftmaxCrossEntropyOp{.weight = weight}, {logits});
    }
    graph.add("loss", SoftmaxCrossEntropyOp{}, {graph.add("fc", FullyConnectedOp{.out_features = 3}, {conv})});
    return graph;
}

TEST_P(ClassicOps, TrainingAddsTheWeightedAuxiliaryLossAndEvaluationLeavesItOut) {
    TestNetwork alone(with_head(0.0F), {.backend = GetParam()});
    TestNetwork half(with_head(0.5F), {.backend = GetParam()});
    TestNetwork whole(with_head(1.0F), {.backend = GetParam()});
    const double main_loss = alone.forward();
    const double head_loss = whole.forward() - main_loss;
    EXPECT_GT(head_loss, 0.1);
    EXPECT_NEAR(half.forward(), main_loss + 0.5 * head_loss, 1e-5);
    EXPECT_NEAR(half.training().losses()[0] + half.training().losses()[1], main_loss + 0.5 * head_loss, 1e-5);
    EXPECT_EQ(std::vector<float>(half.training().logits().begin(), half.training().logits().end()),
              std::vector<float>(alone.training().logits().begin(), alone.training().logits().end()));
    half.backward();
    whole.backward();
    for (size_t element = 0; element < 3; ++element) {
        EXPECT_NEAR(half.gradient("head.bias")[element], 0.5 * whole.gradient("head.bias")[element], 1e-6);
    }
    const auto evaluation = whole.compile(2, Phase::evaluation);
    EXPECT_NEAR(evaluation->forward(whole.batch().input()), main_loss, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Backends, ClassicOps, ::testing::ValuesIn(backends_under_test()),
                         [](const auto& test) { return test.param; });

FeatureShape shape_after(const InputOp& input, const OpAttributes& op) { return infer_shapes(graph_with(input, "op", op)).at(1); }

std::string refusal(const Graph& graph) {
    try {
        validate(graph);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(ClassicShapes, DeconvolutionUndoesAConvolutionsShrinking) {
    const InputOp input{.channels = 4, .height = 5, .width = 6};
    DeconvOp op{.out_channels = 6, .kernel_h = 3, .kernel_w = 4, .stride_h = 2, .stride_w = 3, .pad_h = 1, .groups = 2};
    EXPECT_EQ(shape_after(input, op), (FeatureShape{6, 9, 19}));
    op.output_pad_h = 1;
    op.output_pad_w = 2;
    EXPECT_EQ(shape_after(input, op), (FeatureShape{6, 10, 21}));
    const Graph graph = graph_with(input, "op", op);
    EXPECT_EQ(op_parameters(graph, 1).front().shape, (Shape{4, 3, 3, 4}));
    EXPECT_EQ(forward_macs_per_image(graph), 4 * 5 * 6 * 3 * 3 * 4 + 6 * 10 * 21 * 5);
}

TEST(ClassicShapes, ImpossibleOpsAreRefused) {
    const InputOp input{.channels = 4, .height = 5, .width = 6};
    const std::vector<std::pair<OpAttributes, std::string>> bad{
        {LrnOp{.size = 4}, "odd"},
        {LrnOp{.k = 0.0F}, "k above 0"},
        {DeconvOp{.out_channels = 3, .groups = 2}, "groups"},
        {DeconvOp{.out_channels = 4, .output_pad_w = 1}, "output padding"},
        {DeconvOp{.out_channels = 4, .pad_h = 3}, "leaves no output"},
        {BatchNormOp{.keep = 1.5F}, "keep"},
    };
    for (const auto& [attributes, reason] : bad) EXPECT_THAT(refusal(graph_with(input, "op", attributes)), HasSubstr(reason));
    Graph graph = with_head(0.5F);
    std::get<SoftmaxCrossEntropyOp>(graph.ops[3].attributes).weight = 0.0F;
    EXPECT_THAT(refusal(graph), HasSubstr("weight of a loss"));
    graph = with_head(0.5F);
    std::get<SoftmaxCrossEntropyOp>(graph.ops.back().attributes).weight = 2.0F;
    EXPECT_THAT(refusal(graph), HasSubstr("last loss is 1"));
    graph = with_head(0.5F);
    std::get<FullyConnectedOp>(graph.ops[2].attributes).out_features = 4;
    EXPECT_THAT(refusal(graph), HasSubstr("4 classes"));
    graph = with_head(0.5F);
    graph.ops[4].inputs = {3};
    EXPECT_THAT(refusal(graph), HasSubstr("loss cannot be an input"));
}

TEST(ClassicShapes, NormalisationWithoutScaleHasStatisticsOnly) {
    const Graph graph = graph_with({.channels = 4, .height = 5, .width = 6}, "op", BatchNormOp{.affine = false, .keep = 0.999F});
    const std::vector<ParameterSpec> specs = op_parameters(graph, 1);
    ASSERT_EQ(specs.size(), 2U);
    EXPECT_EQ(specs[0].name, "op.running_mean");
    EXPECT_EQ(specs[1].kind, ParameterKind::bn_variance);
    EXPECT_EQ(specs[1].keep, 0.999F);
}

// Standard deviation of a large tensor against its definition.
TEST(Initializers, FollowTheirFanIn) {
    const auto deviation = [](const Initializer& init) {
        Graph graph = graph_with({.channels = 4, .height = 5, .width = 5}, "op", ReluOp{}, 400);
        std::get<FullyConnectedOp>(graph.ops.at(2).attributes).weight_init = init;
        TestNetwork network(graph, {});
        initialize_parameters(network.backend(), network.arena(), 5);
        return norm(network.value("fc.weight")) / std::sqrt(400.0 * 100.0);
    };
    EXPECT_NEAR(deviation(msra_init()), std::sqrt(2.0 / 100.0), 0.02 * std::sqrt(2.0 / 100.0));
    EXPECT_NEAR(deviation(xavier_init()), std::sqrt(1.0 / 100.0), 0.02 * std::sqrt(1.0 / 100.0));
    EXPECT_NEAR(deviation(torch_default_init()), std::sqrt(1.0 / 300.0), 0.02 * std::sqrt(1.0 / 300.0));
    EXPECT_NEAR(deviation(gaussian_init(0.25F)), 0.25, 0.02 * 0.25);
    EXPECT_NEAR(deviation(uniform_init(0.3F)), std::sqrt(0.03), 0.02 * std::sqrt(0.03));
    EXPECT_NEAR(deviation(constant_init(0.2F)), 0.2, 1e-6);
}

}  // namespace
}  // namespace lockstep::testing_support
