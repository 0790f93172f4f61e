// Which 1x1 convolutions are computed by our own kernel, who decides it, and that networks computed so agree with the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "nn/onednn/kernels/pointwise.h"
#include "tests/support/test_network.h"

namespace lockstep::testing_support {
namespace {

constexpr double kTolerance = 2e-5;  // sums of up to some thousand products in another order than the reference's

TestNetworkOptions onednn(int batch = 2) { return {.backend = "onednn", .batch = batch, .threads = 2}; }

ConvOp conv_1x1(int64_t channels, int64_t stride = 1) { return {.out_channels = channels, .stride_h = stride, .stride_w = stride}; }

int add_loss(Graph& graph, int top) {
    top = graph.add("pool", GlobalAveragePoolOp{}, {top});
    return graph.add("loss", SoftmaxCrossEntropyOp{}, {graph.add("fc", FullyConnectedOp{.out_features = 5}, {top})});
}

// A block as residual networks have it: 1x1, 1x1 with the shortcut behind it, a 1x1 of stride `stride` in the shortcut.
Graph bottleneck(int64_t channels, int64_t height, int64_t width, int64_t stride) {
    Graph graph{.name = "bottleneck"};
    graph.add("input", InputOp{.channels = 3, .height = height, .width = width}, {});
    const int before = graph.add("before", ConvOp{.out_channels = channels, .kernel_h = 3, .kernel_w = 3}, {0});
    const auto norm = [&](const std::string& name, int from) { return graph.add(name, BatchNormOp{}, {from}); };
    const int narrow = graph.add("relu1", ReluOp{}, {norm("bn1", graph.add("conv1", conv_1x1(channels / 2, stride), {before}))});
    const int wide = norm("bn2", graph.add("conv2", conv_1x1(2 * channels), {narrow}));
    const int shortcut = norm("bn3", graph.add("conv3", conv_1x1(2 * channels, stride), {before}));
    add_loss(graph, graph.add("relu2", ReluOp{}, {graph.add("add", AddOp{}, {wide, shortcut})}));
    return graph;
}

size_t own_steps(const Executor& executor) {
    size_t count = 0;
    for (const StepFacts& step : executor.steps()) count += step.implementation == "own:pointwise" ? 1 : 0;
    return count;
}

// Every 1x1 convolution that can be is our own, in every phase.
TestNetwork all_own(const Graph& graph, TestNetworkOptions options, Phase phase) {
    TestNetwork network(graph, options);
    const auto executor = network.compile(options.batch, phase);
    for (const auto& [shape, code] : network.backend().convolutions().codes) {
        if (shape.find(" kernel 1 ") != std::string::npos) options.convolutions.codes.emplace(shape, ConvolutionCode::pointwise);
    }
    return {graph, options};
}

class PointwiseChoice : public ::testing::Test {
protected:
    void SetUp() override {
        if (!onednn::pointwise_runs_here(8)) GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512";
    }
};

TEST_F(PointwiseChoice, TheRuleTakesWhatHasATail) {
    TestNetwork network(bottleneck(32, 11, 9, 1), onednn());
    EXPECT_EQ(own_steps(network.training()), 0U);
    EXPECT_EQ(own_steps(*network.compile(3, Phase::evaluation)), 3U);
}

TEST_F(PointwiseChoice, OffForbidsItAndExactDoesNot) {
    const Graph graph = bottleneck(32, 11, 9, 2);
    TestNetworkOptions options = onednn();
    options.exact = true;
    EXPECT_EQ(own_steps(*TestNetwork(graph, options).compile(3, Phase::evaluation)), 3U);
    const auto backend = make_backend("onednn", {.autotune = Autotune::off});
    HeapPool pool;
    ParameterArena arena(backend->plan_parameters(graph, 2), pool, pool, 0);
    EXPECT_EQ(own_steps(*backend->compile(graph, 2, Phase::evaluation, arena)), 0U);
}

TEST_F(PointwiseChoice, ATableDecides) {
    const Graph graph = bottleneck(16, 8, 8, 2);
    TestNetworkOptions options = onednn();
    options.convolutions.codes = {{"forward 16x6x6 to 32 kernel 1 stride 2 batch 2", ConvolutionCode::pointwise},
                                  {"forward 8x3x3 to 32 kernel 1 stride 1 batch 2", ConvolutionCode::winograd}};  // nonsense
    TestNetwork network(graph, options);
    EXPECT_EQ(own_steps(network.training()), 1U);
    const auto codes = network.backend().convolutions().codes;
    EXPECT_EQ(codes.at("forward 16x6x6 to 32 kernel 1 stride 2 batch 2"), ConvolutionCode::pointwise);
    EXPECT_EQ(codes.at("forward 8x3x3 to 32 kernel 1 stride 1 batch 2"), ConvolutionCode::direct);
}

TEST_F(PointwiseChoice, MeasuringTimesBothCodes) {
    const Graph graph = bottleneck(16, 8, 8, 1);
    const auto backend = make_backend("onednn", {.autotune = Autotune::measure});
    HeapPool pool;
    ParameterArena arena(backend->plan_parameters(graph, 2), pool, pool, 0);
    const ConvolutionTable table = backend->measure_convolutions(graph, 2, Phase::evaluation, arena, {});
    EXPECT_EQ(table.codes.size(), 3U);
    for (const auto& [shape, code] : table.codes) {
        EXPECT_TRUE(shape.starts_with("forward with tail ")) << shape;
        EXPECT_NE(code, ConvolutionCode::winograd) << shape;
    }
    EXPECT_EQ(ConvolutionTable::from_text(table.to_text()), table);
}

TEST_F(PointwiseChoice, OtherConvolutionsAreTheLibrarys) {
    ConvOp grouped = conv_1x1(16), padded = conv_1x1(16), uneven = conv_1x1(16);
    grouped.groups = 2;
    padded.pad_h = padded.pad_w = 1;
    uneven.stride_w = 2;
    for (const ConvOp& conv : {grouped, padded, uneven, conv_1x1(12), conv_1x1(7)}) {
        Graph graph{.name = "other"};
        graph.add("input", InputOp{.channels = 3, .height = 9, .width = 9}, {});
        const int before = graph.add("before", ConvOp{.out_channels = 16, .kernel_h = 3, .kernel_w = 3, .stride_h = 2}, {0});
        add_loss(graph, graph.add("bn", BatchNormOp{}, {graph.add("conv", conv, {before})}));
        TestNetwork network(graph, onednn());
        EXPECT_EQ(own_steps(*network.compile(2, Phase::evaluation)), 0U);
        EXPECT_TRUE(network.backend().convolutions().codes.empty());
    }
}

struct NetworkSize {
    const char* name;
    int64_t channels, height, width, stride;
    int batch;
};

class PointwiseNetwork : public ::testing::TestWithParam<NetworkSize> {
protected:
    void SetUp() override {
        if (!onednn::pointwise_runs_here(8)) GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512";
    }
    const NetworkSize size = GetParam();
    const Graph graph = bottleneck(size.channels, size.height, size.width, size.stride);
};

TEST_P(PointwiseNetwork, EvaluationEqualsTheReference) {
    TestNetwork fast = all_own(graph, onednn(size.batch), Phase::evaluation), slow(graph, {.batch = size.batch});
    const auto fast_executor = fast.compile(size.batch, Phase::evaluation),
               slow_executor = slow.compile(size.batch, Phase::evaluation);
    ASSERT_EQ(own_steps(*fast_executor), 3U);
    const TestBatch images = random_batch(graph, size.batch, 4);
    fast_executor->forward(images.input());
    slow_executor->forward(images.input());
    const std::vector<float> actual(fast_executor->logits().begin(), fast_executor->logits().end());
    const std::vector<float> expected(slow_executor->logits().begin(), slow_executor->logits().end());
    EXPECT_LE(relative_error(actual, expected), kTolerance);
}

TEST_P(PointwiseNetwork, AStepEqualsTheReference) {
    TestNetwork actual = all_own(graph, onednn(size.batch), Phase::training), expected(graph, {.batch = size.batch});
    ASSERT_GE(own_steps(actual.training()), 3U);
    for (const bool accumulate : {false, true}) {
        const double loss = expected.forward();
        EXPECT_NEAR(actual.forward(), loss, kTolerance * loss);
        expected.backward(accumulate);
        actual.backward(accumulate);
        for (const std::string& name : expected.parameter_names())
            EXPECT_LE(relative_error(actual.gradient(name), expected.gradient(name)), 10 * kTolerance) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PointwiseNetwork,
                         ::testing::Values(NetworkSize{"one_image", 32, 9, 10, 1, 1}, NetworkSize{"strided", 16, 12, 9, 2, 3},
                                           NetworkSize{"wide", 64, 7, 6, 1, 2}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lockstep::testing_support
