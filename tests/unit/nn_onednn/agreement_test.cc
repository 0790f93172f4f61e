// The oneDNN backend against the plain loops of the reference backend: same parameters, images and labels.
#include <tuple>

#include <gtest/gtest.h>

#include "models/models.h"
#include "tests/support/test_network.h"
#include "tests/unit/nn/network_cases.h"

namespace lockstep::testing_support {
namespace {

// The backends sum in other orders and the reference sums in double: fp32 rounding of sums of some thousand terms, relative to the
// tensor's Euclidean norm. Where ReLU or max pooling follow, a rounding difference near a bend flips single elements.
constexpr double kTolerance = 1e-4;

// Both backends on the same numbers: every parameter copied through the plain layout.
class Pair {
public:
    Pair(const Graph& graph, int batch, int threads, Fusion fusion = Fusion::all)
        : reference_(graph, {.backend = "reference", .batch = batch, .threads = threads}),
          onednn_(graph, {.backend = "onednn", .batch = batch, .threads = threads, .fusion = fusion}) {}

    void expect_equal_step(bool accumulate = false) {
        const double reference_loss = reference_.forward();
        EXPECT_NEAR(onednn_.forward(), reference_loss, kTolerance * std::abs(reference_loss));
        expect_equal(onednn_.training().logits(), reference_.training().logits(), "logits");
        expect_equal(onednn_.training().losses(), reference_.training().losses(), "losses");
        reference_.backward(accumulate);
        onednn_.backward(accumulate);
        for (const std::string& name : reference_.parameter_names()) {
            EXPECT_LE(relative_error(onednn_.gradient(name), reference_.gradient(name)), tolerance_of(name)) << name;
        }
    }

    void expect_equal_evaluation(int batch) {
        TestBatch images = random_batch(reference_.graph(), batch, 9);
        images.labels.back() = -1;
        const auto expected = reference_.compile(batch, Phase::evaluation);
        const auto actual = onednn_.compile(batch, Phase::evaluation);
        EXPECT_NEAR(actual->forward(images.input()), expected->forward(images.input()), 1e-3);
        expect_equal(actual->logits(), expected->logits(), "logits");
    }

    TestNetwork& onednn() { return onednn_; }

private:
    static void expect_equal(std::span<const float> left, std::span<const float> right, const char* what) {
        EXPECT_LE(relative_error({left.begin(), left.end()}, {right.begin(), right.end()}), kTolerance) << what;
    }

    // A bias in front of a batch norm has no effect: its gradient is a difference of equal sums, all rounding.
    double tolerance_of(const std::string& name) { return norm(reference_.gradient(name)) < 1e-4 ? 1e9 : kTolerance; }

    TestNetwork reference_;
    TestNetwork onednn_;
};

class Agreement : public ::testing::TestWithParam<NetworkCase> {};

TEST_P(Agreement, StepAndAccumulationEqualTheReference) {
    Pair pair(GetParam().graph, GetParam().batch, 1);
    pair.expect_equal_step(false);
    pair.expect_equal_step(true);
}

TEST_P(Agreement, EvaluationAtAnotherBatchEqualsTheReference) {
    Pair(GetParam().graph, GetParam().batch, 1).expect_equal_evaluation(3);
}

TEST_P(Agreement, TwoThreadsEqualTheReference) { Pair(GetParam().graph, GetParam().batch, 2).expect_equal_step(); }

INSTANTIATE_TEST_SUITE_P(EveryOp, Agreement, ::testing::ValuesIn(network_cases()),
                         [](const auto& instance) { return instance.param.name; });

class WholeNetwork : public ::testing::TestWithParam<std::string> {};

TEST_P(WholeNetwork, StepEqualsTheReference) {
    const int64_t image_size = GetParam() == "mnist_cnn" ? 28 : 32;
    const Graph graph = build_model({.arch = GetParam(), .num_classes = 10, .image_size = image_size});
    Pair pair(graph, 2, 2);
    pair.expect_equal_step();
    pair.expect_equal_evaluation(3);
}

INSTANTIATE_TEST_SUITE_P(Models, WholeNetwork, ::testing::Values("resnet20", "mnist_cnn", "tiny_cnn", "tiny_bn"),
                         [](const auto& instance) { return instance.param; });

ConvOp conv_of(int64_t channels, int64_t kernel, int64_t stride) {
    return {.out_channels = channels,
            .kernel_h = kernel,
            .kernel_w = kernel,
            .stride_h = stride,
            .stride_w = stride,
            .pad_h = kernel / 2,
            .pad_w = kernel / 2};
}

// Two residual blocks, the second with a projected shortcut, in the order in which torchvision's models run: gradients shared
// between branches, in-place additions and summed contributions all meet here.
Graph residual_network(int64_t channels) {
    Graph graph{.name = "residual"};
    graph.add("input", InputOp{.channels = 3, .height = 9, .width = 8}, {});
    const auto block = [&](const std::string& name, int from, int64_t width, int64_t stride, bool project) {
        int top = graph.add(name + ".conv1", conv_of(width, 1, 1), {from});
        top = graph.add(name + ".relu1", ReluOp{}, {graph.add(name + ".bn1", BatchNormOp{}, {top})});
        top = graph.add(name + ".bn2", BatchNormOp{}, {graph.add(name + ".conv2", conv_of(width, 3, stride), {top})});
        int shortcut = from;
        if (project) {
            shortcut = graph.add(name + ".bn_s", BatchNormOp{}, {graph.add(name + ".conv_s", conv_of(width, 1, stride), {from})});
        }
        return graph.add(name + ".relu", ReluOp{}, {graph.add(name + ".add", AddOp{}, {top, shortcut})});
    };
    int top = graph.add("bn0", BatchNormOp{}, {graph.add("conv0", conv_of(channels, 3, 1), {0})});
    top = graph.add("relu0", ReluOp{}, {top});
    top = block("a", top, channels, 1, false);
    top = block("b", top, 2 * channels, 2, true);
    top = block("c", top, 2 * channels, 1, false);
    top = graph.add("pool", GlobalAveragePoolOp{}, {top});
    graph.add("loss", SoftmaxCrossEntropyOp{}, {graph.add("fc", FullyConnectedOp{.out_features = 7}, {top})});
    return graph;
}

class Residual : public ::testing::TestWithParam<std::tuple<int64_t, Fusion>> {};

TEST_P(Residual, BranchesEqualTheReference) {
    const auto [channels, fusion] = GetParam();
    Pair pair(residual_network(channels), 4, 1, fusion);
    pair.expect_equal_step(false);
    pair.expect_equal_step(true);
    pair.expect_equal_evaluation(5);
}

INSTANTIATE_TEST_SUITE_P(Channels, Residual,
                         ::testing::Combine(::testing::Values(5, 8, 16),
                                            ::testing::Values(Fusion::off, Fusion::bn_relu, Fusion::all)));

// A batch norm that others read too, two of them in one addition, an addition of the same thing twice, one without ReLU: what must
// not be fused, or not with the wrong one.
Graph network_of_near_misses() {
    Graph graph{.name = "near_misses"};
    graph.add("input", InputOp{.channels = 3, .height = 6, .width = 6}, {});
    const auto norm = [&](const std::string& name, int from) {
        return graph.add(name + ".bn", BatchNormOp{}, {graph.add(name + ".conv", conv_of(16, 3, 1), {from})});
    };
    const auto relu = [&](const std::string& name, int from) { return graph.add(name, ReluOp{}, {from}); };
    int top = relu("relu0", norm("first", 0));
    const int shared = norm("shared", top);
    top = relu("relu1", graph.add("add1", AddOp{}, {shared, norm("only", top)}));
    top = relu("relu2", graph.add("add2", AddOp{}, {top, shared}));
    const int twice = norm("twice", top);
    top = relu("relu3", graph.add("add3", AddOp{}, {twice, twice}));
    top = graph.add("add4", AddOp{}, {norm("no_relu", top), top});
    top = relu("relu5", graph.add("add5", AddOp{}, {norm("left", top), norm("right", top)}));
    top = graph.add("pool", GlobalAveragePoolOp{}, {top});
    graph.add("loss", SoftmaxCrossEntropyOp{}, {graph.add("fc", FullyConnectedOp{.out_features = 5}, {top})});
    return graph;
}

TEST(Fusion, NearMissesEqualTheReference) {
    for (const Fusion fusion : {Fusion::off, Fusion::bn_relu, Fusion::all}) {
        Pair pair(network_of_near_misses(), 3, 2, fusion);
        pair.expect_equal_step(false);
        pair.expect_equal_step(true);
    }
}

}  // namespace
}  // namespace lockstep::testing_support
