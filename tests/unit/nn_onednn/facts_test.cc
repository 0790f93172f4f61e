// What a program tells about itself, and that timing it is no other computation.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/models.h"
#include "tests/support/test_network.h"

namespace lockstep::testing_support {
namespace {

TestNetwork resnet20(int batch = 4, int threads = 1, Fusion fusion = Fusion::all) {
    return TestNetwork(build_model({.arch = "resnet20", .num_classes = 10, .image_size = 32}),
                       {.backend = "onednn", .batch = batch, .threads = threads, .fusion = fusion});
}

size_t count_of(const std::vector<StepFacts>& steps, std::string_view what) {
    return static_cast<size_t>(std::ranges::count_if(steps, [&](const StepFacts& step) { return step.what == what; }));
}

TEST(Facts, TimedPassesAreTheSameComputation) {
    TestNetwork network = resnet20();
    const double loss = network.forward();
    network.backward();
    const std::vector<float> expected(network.arena().gradients().begin(), network.arena().gradients().end());
    std::ranges::fill(network.arena().gradients(), 0.0F);
    const StepTimes times = network.training().time_steps(network.batch().input());
    EXPECT_EQ(times.loss, loss);
    EXPECT_EQ(std::memcmp(expected.data(), network.arena().gradients().data(), expected.size() * sizeof(float)), 0);
}

// The clocks around steps lie inside the clock around all of them.
TEST(Facts, StepsAddUpToTheirPass) {
    TestNetwork network = resnet20();
    const std::vector<StepFacts> steps = network.training().steps();
    const StepTimes times = network.training().time_steps(network.batch().input());
    ASSERT_EQ(times.step_ms.size(), steps.size());
    double forward_ms = 0.0, backward_ms = 0.0;
    for (size_t step = 0; step < steps.size(); ++step) {
        (steps[step].part == StepFacts::Part::forward ? forward_ms : backward_ms) += times.step_ms[step];
    }
    EXPECT_GT(forward_ms, 0.0);
    EXPECT_LE(forward_ms, times.forward_ms);
    EXPECT_GT(backward_ms, 0.0);
    EXPECT_LE(backward_ms, times.backward_ms);
}

TEST(Facts, EveryOpHasAStepOrIsInAnothersGroup) {
    TestNetwork network = resnet20();
    std::set<std::string> seen;
    for (const StepFacts& step : network.training().steps()) {
        seen.insert(step.op);
        for (const Op& op : network.graph().ops) {
            if ((" " + step.group + " ").find(" " + op.name + " ") != std::string::npos) seen.insert(op.name);
        }
        EXPECT_FALSE(step.kind.empty());
        EXPECT_FALSE(step.implementation.empty());
        EXPECT_GT(step.bytes, 0.0) << step.op << " " << step.what;
    }
    for (const Op& op : network.graph().ops) EXPECT_TRUE(seen.contains(op.name)) << op.name;
}

TEST(Facts, ConvolutionsTellTheirArithmetic) {
    TestNetwork network = resnet20(4);
    double flop = 0.0;
    for (const StepFacts& step : network.training().steps()) flop += step.flop;
    const double forward = 2.0 * 4.0 * static_cast<double>(forward_macs_per_image(network.graph()));
    const double unneeded = 2.0 * 4.0 * static_cast<double>(forward_macs_by_op(network.graph())[1]);  // gradient of the images
    EXPECT_DOUBLE_EQ(flop, 3.0 * forward - unneeded);
}

TEST(Facts, FusionTakesStepsAway) {
    const std::vector<StepFacts> off = resnet20(4, 1, Fusion::off).training().steps();
    const std::vector<StepFacts> bn_relu = resnet20(4, 1, Fusion::bn_relu).training().steps();
    const std::vector<StepFacts> all = resnet20(4, 1, Fusion::all).training().steps();
    EXPECT_LT(bn_relu.size(), off.size());
    EXPECT_LT(all.size(), bn_relu.size());
    EXPECT_EQ(count_of(off, "add"), 9U + 9U);  // blocks, and sums of two gradients where they branch off
    EXPECT_EQ(count_of(bn_relu, "add and ReLU"), 9U);
    EXPECT_EQ(count_of(all, "add and ReLU") + count_of(all, "add"), 0U);
    EXPECT_EQ(count_of(all, "batch norm, add, ReLU"), 9U);
}

// Two downsampling shortcuts stand behind the convolution in the graph; their additions stay passes of their own.
TEST(Facts, InEvaluationAConvolutionDoesNormAdditionAndRelu) {
    TestNetwork network = resnet20();
    const auto executor = network.compile(2, Phase::evaluation);
    const std::vector<StepFacts> steps = executor->steps();
    EXPECT_EQ(count_of(steps, "convolution"), 19U);
    EXPECT_EQ(count_of(steps, "batch norm factors"), 19U);
    EXPECT_EQ(count_of(steps, "batch_normalization"), 0U);
    EXPECT_EQ(count_of(steps, "eltwise"), 0U);
    EXPECT_EQ(count_of(steps, "add and ReLU"), 2U);
    EXPECT_EQ(count_of(steps, "reorder"), 0U);
    const auto last =
        std::ranges::find_if(steps, [](const StepFacts& step) { return step.op == "layer3.2.conv2" && step.flop > 0.0; });
    ASSERT_NE(last, steps.end());
    EXPECT_EQ(last->group, "layer3.2.conv2 + layer3.2.bn2 + layer3.2.add + layer3.2.relu_out");
}

TEST(Facts, ASigmoidBehindABatchNormIsDoneWithIt) {
    TestNetwork network(build_model({.arch = "cifar10_full_sigmoid_bn", .num_classes = 10, .image_size = 32}),
                        {.backend = "onednn", .batch = 2});
    const std::vector<StepFacts> steps = network.training().steps();
    EXPECT_EQ(count_of(steps, "batch norm, sigmoid"), 3U);
    EXPECT_EQ(count_of(steps, "batch norm gradient"), 3U);
    EXPECT_EQ(count_of(steps, "eltwise") + count_of(steps, "eltwise gradient"), 0U);
    EXPECT_EQ(count_of(steps, "max pooling") + count_of(steps, "average pooling"), 3U);
    EXPECT_EQ(count_of(steps, "max pooling gradient") + count_of(steps, "average pooling gradient"), 3U);
}

TEST(Facts, WithoutPropagationThereIsAReorderAroundEachConvolution) {
    const Graph graph = build_model({.arch = "resnet20", .num_classes = 10, .image_size = 32});
    const auto compiled = [&](const BackendOptions& options) {
        const auto backend = make_backend("onednn", options);
        HeapPool pool;
        ParameterArena arena(backend->plan_parameters(graph, 4), pool, pool, 0);
        return backend->compile(graph, 4, Phase::training, arena)->memory();
    };
    const MemoryUse usual = compiled({.fusion = Fusion::off});
    const MemoryUse plain = compiled({.fusion = Fusion::off, .plain_between_ops = true});
    const MemoryUse apart = compiled({.fusion = Fusion::off, .share_memory = false});
    EXPECT_EQ(usual.reorders, 0);
    EXPECT_GE(plain.reorders, 19 * 4 - 2);  // two forward, two backward; none for the gradient of the images
    EXPECT_EQ(apart.activation_bytes, apart.activation_bytes_unshared);
    EXPECT_LT(usual.activation_bytes, apart.activation_bytes);
    EXPECT_THROW(make_backend("onednn", {.plain_between_ops = true}), ConfigError);
}

TEST(Facts, TheMemoryPlanIsWhatTheWorkspaceHolds) {
    TestNetwork network = resnet20();
    const std::vector<PlannedBuffer> buffers = network.training().memory_plan();
    const size_t step_count = network.training().steps().size();
    size_t end = 0;
    for (const PlannedBuffer& buffer : buffers) {
        end = std::max(end, buffer.offset + buffer.bytes);
        EXPECT_LE(buffer.first_step, buffer.last_step);
        EXPECT_LT(buffer.last_step, step_count);
        EXPECT_FALSE(buffer.name.empty());
    }
    EXPECT_LE(end, network.training().memory().activation_bytes);
    EXPECT_GT(end + 64, network.training().memory().activation_bytes);
    for (const PlannedBuffer& a : buffers) {
        for (const PlannedBuffer& b : buffers) {
            const bool share = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
            if (&a != &b && share) {
                EXPECT_TRUE(a.last_step < b.first_step || b.last_step < a.first_step) << a.name << ", " << b.name;
            }
        }
    }
}

TEST(Facts, OneStepCanBeTimedAlone) {
    TestNetwork network = resnet20();
    const double loss = network.forward();
    network.training().time_steps(network.batch().input());
    const std::vector<StepFacts> steps = network.training().steps();
    for (size_t step = 0; step < steps.size(); ++step) {
        if (steps[step].kind == "conv") {
            EXPECT_GT(network.training().time_alone(step, 1), 0.0);
        }
    }
    EXPECT_EQ(network.forward(), loss);
}

}  // namespace
}  // namespace lockstep::testing_support
