// Which convolutions are computed by Winograd's algorithm, who decides it, and that networks computed so agree with the reference.
#include <unistd.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "nn/convolution_cache.h"
#include "nn/onednn/kernels/winograd.h"
#include "tests/support/test_network.h"

namespace lockstep::testing_support {
namespace {

constexpr double kTolerance = 1e-3;  // what Winograd's rounding may cost in a gradient, relative to its norm

ConvOp conv_3x3(int64_t channels) { return {.out_channels = channels, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}; }

// Images -> 1x1 convolution to `channels` -> `middle` -> fully connected -> loss.
Graph around(int64_t channels, const InputOp& input, const std::vector<OpAttributes>& middle) {
    Graph graph{.name = "around"};
    graph.add("input", input, {});
    int top = graph.add("before", ConvOp{.out_channels = channels}, {0});
    for (size_t index = 0; index < middle.size(); ++index) top = graph.add(fmt::format("middle{}", index), middle[index], {top});
    top = graph.add("pool", GlobalAveragePoolOp{}, {top});
    graph.add("loss", SoftmaxCrossEntropyOp{}, {graph.add("fc", FullyConnectedOp{.out_features = 5}, {top})});
    return graph;
}

TestNetworkOptions onednn(int batch = 2, int threads = 1) { return {.backend = "onednn", .batch = batch, .threads = threads}; }

std::multiset<std::string> winograd_steps(const Executor& executor) {
    std::multiset<std::string> names;
    for (const StepFacts& step : executor.steps())
        if (step.implementation == "own:winograd") names.insert(step.what);
    return names;
}

const std::multiset<std::string> kAllPasses{"convolution", "convolution gradient", "convolution weight gradient"};
const std::multiset<std::string> kNone;

// Every convolution that can be is Winograd's, however small.
TestNetwork all_winograd(const Graph& graph, TestNetworkOptions options) {
    for (const auto& [shape, code] : TestNetwork(graph, options).backend().convolutions().codes)
        options.convolutions.codes.emplace(shape, ConvolutionCode::winograd);
    return {graph, options};
}

class WinogradChoice : public ::testing::Test {
protected:
    void SetUp() override {
        if (!onednn::winograd_runs_here(8)) GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512";
        folder_ = fs::temp_directory_path() / fmt::format("lockstep-convolutions-{}", getpid());
        make_directories(folder_);
    }
    void TearDown() override {
        std::error_code ignored;
        fs::remove_all(folder_, ignored);
    }

    fs::path folder_;
};

TEST_F(WinogradChoice, TheRuleTakesWideConvolutionsInAllDirections) {
    const Graph wide = around(64, {.channels = 3, .height = 16, .width = 16}, {conv_3x3(64)});
    EXPECT_EQ(winograd_steps(TestNetwork(wide, onednn()).training()), kAllPasses);
    const Graph narrow = around(8, {.channels = 3, .height = 16, .width = 16}, {conv_3x3(8)});
    EXPECT_EQ(winograd_steps(TestNetwork(narrow, onednn()).training()), kNone);
}

TEST_F(WinogradChoice, TheRuleTakesKernelsOfFiveAndNoOthers) {
    ConvOp five{.out_channels = 32, .kernel_h = 5, .kernel_w = 5, .pad_h = 2, .pad_w = 2};
    const InputOp input{.channels = 3, .height = 16, .width = 16};
    EXPECT_EQ(winograd_steps(TestNetwork(around(32, input, {five}), onednn()).training()), kAllPasses);
    five.kernel_w = 3;
    EXPECT_EQ(winograd_steps(TestNetwork(around(32, input, {five}), onednn()).training()), kNone);
}

TEST_F(WinogradChoice, InEvaluationItDoesWhatFollowsTheConvolution) {
    Graph graph = around(32, {.channels = 3, .height = 14, .width = 15}, {conv_3x3(32)});
    graph.ops.resize(3);  // up to the 3x3 convolution
    const int bn = graph.add("bn", BatchNormOp{}, {2});
    const int relu = graph.add("relu", ReluOp{}, {graph.add("add", AddOp{}, {bn, 1})});
    const int pool = graph.add("pool", GlobalAveragePoolOp{}, {relu});
    graph.add("loss", SoftmaxCrossEntropyOp{}, {graph.add("fc", FullyConnectedOp{.out_features = 5}, {pool})});
    TestNetwork fast(graph, onednn()), slow(graph, {.backend = "reference", .batch = 2});
    const TestBatch images = random_batch(graph, 3, 4);
    const auto fast_executor = fast.compile(3, Phase::evaluation), slow_executor = slow.compile(3, Phase::evaluation);
    EXPECT_EQ(winograd_steps(*fast_executor), std::multiset<std::string>{"convolution"});
    for (const StepFacts& step : fast_executor->steps()) {
        EXPECT_TRUE(step.kind != "batch_norm" && step.kind != "add" && step.kind != "relu") << step.op;
    }
    fast_executor->forward(images.input());
    slow_executor->forward(images.input());
    const std::vector<float> actual(fast_executor->logits().begin(), fast_executor->logits().end());
    const std::vector<float> expected(slow_executor->logits().begin(), slow_executor->logits().end());
    EXPECT_LE(relative_error(actual, expected), 1e-4);
}

TEST_F(WinogradChoice, WithFewPixelsEvaluationKeepsTransformedWeightsAndTrainingDoesNotTakeIt) {
    const Graph graph = around(32, {.channels = 3, .height = 11, .width = 12}, {conv_3x3(32)});
    TestNetwork fast(graph, onednn(1, 2)), slow(graph, {.batch = 1});
    EXPECT_EQ(winograd_steps(fast.training()), kNone);
    const auto fast_executor = fast.compile(1, Phase::evaluation), slow_executor = slow.compile(1, Phase::evaluation);
    EXPECT_EQ(winograd_steps(*fast_executor), std::multiset<std::string>{"convolution"});
    EXPECT_GE(fast_executor->memory().kept_bytes, 36U * 32 * 32 * sizeof(float)) << "36 points of each pair of channels";
    EXPECT_EQ(fast.training().memory().kept_bytes, 0U);
    EXPECT_TRUE(fast.backend().convolutions().codes.contains("forward with kept weights 32x11x12 to 32 kernel 3 pad 1 batch 1"));
    const TestBatch images = random_batch(graph, 1, 4);
    for (const float factor : {1.0F, -0.5F}) {
        std::vector<float> weights = slow.value("middle0.weight");
        for (float& weight : weights) weight *= factor;
        fast.set_value("middle0.weight", weights);
        slow.set_value("middle0.weight", weights);
        fast_executor->forward(images.input());
        slow_executor->forward(images.input());
        const std::vector<float> actual(fast_executor->logits().begin(), fast_executor->logits().end());
        const std::vector<float> expected(slow_executor->logits().begin(), slow_executor->logits().end());
        EXPECT_LE(relative_error(actual, expected), 1e-4);
    }
}

TEST_F(WinogradChoice, ExactAndOffForbidIt) {
    const Graph wide = around(64, {.channels = 3, .height = 16, .width = 16}, {conv_3x3(64)});
    TestNetworkOptions options = onednn();
    options.exact = true;
    options.convolutions = TestNetwork(wide, onednn()).backend().convolutions();  // says Winograd
    EXPECT_EQ(winograd_steps(TestNetwork(wide, options).training()), kNone);
    const auto backend = make_backend("onednn", {.autotune = Autotune::off});
    HeapPool pool;
    ParameterArena arena(backend->plan_parameters(wide, 2), pool, pool, 0);
    EXPECT_EQ(winograd_steps(*backend->compile(wide, 2, Phase::training, arena)), kNone);
}

TEST_F(WinogradChoice, ATableDecidesEachDirection) {
    const Graph graph = around(8, {.channels = 3, .height = 6, .width = 6}, {conv_3x3(8)});
    TestNetworkOptions options = onednn();
    options.convolutions.codes = {{"weight gradient 8x6x6 to 8 kernel 3 pad 1 batch 2", ConvolutionCode::winograd}};
    TestNetwork network(graph, options);
    EXPECT_EQ(winograd_steps(network.training()), std::multiset<std::string>{"convolution weight gradient"});
    EXPECT_EQ(network.backend().convolutions().to_text(),
              "forward 8x6x6 to 8 kernel 3 pad 1 batch 2 = direct\nsource gradient 8x6x6 to 8 kernel 3 pad 1 batch 2 = direct\n"
              "weight gradient 8x6x6 to 8 kernel 3 pad 1 batch 2 = winograd\n");
}

TEST_F(WinogradChoice, OtherConvolutionsAreRefused) {
    ConvOp grouped = conv_3x3(16), strided = conv_3x3(16), dilated = conv_3x3(16), wide = conv_3x3(16), uneven = conv_3x3(16);
    grouped.groups = 2;
    strided.stride_h = 2;
    dilated.dilation_w = 2;
    wide.kernel_h = wide.kernel_w = 7;
    wide.pad_h = wide.pad_w = 3;
    uneven.pad_w = 0;
    ConvOp odd_bias = conv_3x3(12);
    odd_bias.bias = true;
    for (const ConvOp& conv : {grouped, strided, dilated, wide, uneven, odd_bias}) {
        TestNetwork network(around(16, {.channels = 3, .height = 9, .width = 9}, {conv}), onednn());
        EXPECT_TRUE(network.backend().convolutions().codes.empty());
    }
}

struct NetworkSize {
    const char* name;
    int64_t channels, height, width;
    int batch;
};

class WinogradNetwork : public ::testing::TestWithParam<NetworkSize> {};

// Convolutions with bias and ReLU, with batch norm, of channels that fill no block, without and with a wide border.
Graph network_of(const NetworkSize& size) {
    ConvOp with_bias = conv_3x3(16), borderless = conv_3x3(size.channels), wide = conv_3x3(8);
    with_bias.bias = true;
    borderless.pad_h = borderless.pad_w = 0;
    wide.pad_h = wide.pad_w = 2;
    return around(size.channels, {.channels = 3, .height = size.height, .width = size.width},
                  {conv_3x3(size.channels), BatchNormOp{}, ReluOp{}, with_bias, ReluOp{}, borderless, wide});
}

TEST_P(WinogradNetwork, StepAndAccumulationEqualTheReference) {
    if (!onednn::winograd_runs_here(8)) GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512";
    const NetworkSize& size = GetParam();
    TestNetwork actual = all_winograd(network_of(size), onednn(size.batch, 2));
    ASSERT_EQ(winograd_steps(actual.training()).size(), 12U);
    TestNetwork expected(network_of(size), {.batch = size.batch});
    for (const bool accumulate : {false, true}) {
        const double loss = expected.forward();
        EXPECT_NEAR(actual.forward(), loss, kTolerance * loss);
        expected.backward(accumulate);
        actual.backward(accumulate);
        for (const std::string& name : expected.parameter_names())
            EXPECT_LE(relative_error(actual.gradient(name), expected.gradient(name)), kTolerance) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, WinogradNetwork,
                         ::testing::Values(NetworkSize{"blocks", 16, 12, 12, 4}, NetworkSize{"odd_channels", 13, 7, 10, 3},
                                           NetworkSize{"one_image", 24, 5, 9, 1}),
                         [](const auto& test) { return test.param.name; });

TEST_F(WinogradChoice, MeasuringNamesEveryShapeAndBelievesWhatIsKnown) {
    const Graph graph = around(16, {.channels = 3, .height = 8, .width = 8}, {conv_3x3(16), conv_3x3(16), conv_3x3(8)});
    const auto backend = make_backend("onednn", {.autotune = Autotune::measure});
    HeapPool pool;
    ParameterArena arena(backend->plan_parameters(graph, 2), pool, pool, 0);
    ConvolutionTable table = backend->measure_convolutions(graph, 2, Phase::training, arena, {});
    EXPECT_EQ(table.codes.size(), 6U);  // two shapes, three directions
    for (auto& [shape, code] : table.codes) code = ConvolutionCode::winograd;
    EXPECT_EQ(backend->measure_convolutions(graph, 2, Phase::training, arena, table), table);
    EXPECT_EQ(backend->measure_convolutions(graph, 2, Phase::evaluation, arena, {}).codes.size(), 2U);
}

TEST_F(WinogradChoice, WhatWasMeasuredIsKept) {
    const Graph graph = around(16, {.channels = 3, .height = 8, .width = 8}, {conv_3x3(16)});
    const auto backend = make_backend("onednn", {.autotune = Autotune::measure});
    HeapPool pool;
    ParameterArena arena(backend->plan_parameters(graph, 2), pool, pool, 0);
    const auto measured = [&] { return measured_convolutions(*backend, graph, 2, Phase::training, arena, folder_.string()); };
    ConvolutionTable table = measured();
    ASSERT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
    const fs::path file = fs::directory_iterator(folder_)->path();
    EXPECT_EQ(read_file(file).substr(read_file(file).find('\n') + 1), table.to_text());
    write_file_atomically(file, "lockstep-convolutions 1 0123456789abcdef\n" + table.to_text());  // a wrong checksum
    EXPECT_EQ(measured().codes.size(), 3U);
    EXPECT_EQ(read_file(file).find("0123456789abcdef"), std::string::npos) << "a damaged file is made anew";
}

TEST_F(WinogradChoice, AKeptTableIsReadOnlyWhole) {
    const fs::path file = convolution_file(folder_, "here");
    EXPECT_NE(file, convolution_file(folder_, "elsewhere"));
    EXPECT_FALSE(load_convolutions(file, "here"));
    const ConvolutionTable table{
        {{"forward 8x6x6 to 8 pad 1", ConvolutionCode::winograd}, {"weight gradient 8x6x6 to 8 pad 1", {}}}};
    save_convolutions(file, "here", table);
    EXPECT_EQ(load_convolutions(file, "here"), table);
    EXPECT_FALSE(load_convolutions(file, "elsewhere"));
    const std::string content = read_file(file);
    for (const std::string& damaged :
         {std::string(), content.substr(0, content.size() - 1), content.substr(0, 20), "x" + content, content + "x = direct\n"}) {
        write_file_atomically(file, damaged);
        EXPECT_FALSE(load_convolutions(file, "here")) << damaged;
    }
    EXPECT_THROW(ConvolutionTable::from_text("forward 8x6x6 to 8 pad 1 = fast\n"), DataError);
    EXPECT_THROW(ConvolutionTable::from_text("forward 8x6x6 to 8 pad 1 = direct"), DataError);
}

}  // namespace
}  // namespace lockstep::testing_support
