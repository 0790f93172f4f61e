// What nn/executor.h promises, on every backend.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/models.h"
#include "nn/dropout.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/backends.h"
#include "tests/support/test_network.h"
#include "tests/unit/nn/network_cases.h"

namespace lockstep::testing_support {
namespace {

// Sums in another order, or with fewer bits, move fp32 results by some 1e-6; ten times that is a comfortable bound.
constexpr double kRounding = 1e-5;

Graph tiny(const std::string& arch, int64_t image_size = 8) {
    return build_model({.arch = arch, .num_classes = 5, .image_size = image_size, .zero_init_last_bn = false});
}

class ExecutorContract : public ::testing::TestWithParam<std::string> {
protected:
    TestNetworkOptions options(int batch = 3) const { return {.backend = GetParam(), .batch = batch, .seed = 5}; }
};

class RecordingSink final : public GradientSink {
public:
    void ready_up_to(size_t entry_end) override { ends.push_back(entry_end); }
    std::vector<size_t> ends;
};

std::vector<std::vector<float>> all_gradients(const TestNetwork& network) {
    std::vector<std::vector<float>> gradients;
    for (const std::string& name : network.parameter_names()) gradients.push_back(network.gradient(name));
    return gradients;
}

TEST_P(ExecutorContract, EntriesStandInBackwardOrderWithPlainShapes) {
    const Graph graph = tiny("tiny_bn");
    TestNetwork network(graph, options());
    const std::vector<ParameterOwner> owners = backward_order(graph);
    ASSERT_EQ(network.arena().entries().size(), owners.size() + 1);
    for (size_t entry = 0; entry < owners.size(); ++entry) {
        EXPECT_EQ(network.arena().entries()[entry].spec.name, owners[entry].spec.name);
        EXPECT_EQ(network.arena().entries()[entry].spec.shape, owners[entry].spec.shape);
        EXPECT_EQ(network.arena().entries()[entry].spec.kind, owners[entry].spec.kind);
    }
}

TEST_P(ExecutorContract, PlainValuesSurviveTheWayThroughThePhysicalLayout) {
    TestNetwork network(tiny("tiny_bn"), options());
    for (const std::string& name : network.parameter_names()) {
        std::vector<float> plain = network.value(name);
        for (size_t element = 0; element < plain.size(); ++element) plain[element] = static_cast<float>(element) + 0.5F;
        network.set_value(name, plain);
        EXPECT_EQ(network.value(name), plain) << name;
    }
}

TEST_P(ExecutorContract, FirstValuesDependOnSeedAndNameOnly) {
    TestNetwork network(tiny("tiny_bn"), options());
    TestNetwork other(tiny("tiny_bn"), {.backend = "reference", .batch = 1});
    initialize_parameters(network.backend(), network.arena(), 42);
    initialize_parameters(other.backend(), other.arena(), 42);
    for (const std::string& name : network.parameter_names()) EXPECT_EQ(network.value(name), other.value(name)) << name;
    initialize_parameters(network.backend(), network.arena(), 43);
    EXPECT_NE(network.value("conv1.weight"), other.value("conv1.weight"));
    EXPECT_NE(network.value("conv1.weight"), network.value("conv2.weight"));
    EXPECT_EQ(network.value("bn1.running_var"), std::vector<float>(8, 1.0F));
}

TEST_P(ExecutorContract, ForwardReturnsTheSumOfTheLossesOfTheLogits) {
    TestNetwork network(tiny("tiny_cnn"), options(4));
    const double total = network.forward();
    const std::span<const float> logits = network.training().logits();
    const std::span<const float> losses = network.training().losses();
    ASSERT_EQ(logits.size(), 4U * 5U);
    ASSERT_EQ(losses.size(), 4U);
    double sum = 0.0;
    for (size_t image = 0; image < losses.size(); ++image) {
        double normaliser = 0.0;
        for (size_t k = 0; k < 5; ++k) normaliser += std::exp(static_cast<double>(logits[image * 5 + k]));
        const auto label = static_cast<size_t>(network.batch().labels[image]);
        EXPECT_NEAR(losses[image], std::log(normaliser) - logits[image * 5 + label], 1e-5);
        sum += losses[image];
    }
    EXPECT_NEAR(total, sum, 1e-5);
}

TEST_P(ExecutorContract, AMixturesLossAndGradientsAreTheMixtureOfThoseOfItsLabels) {
    TestNetwork network(tiny("tiny_cnn"), options(4));
    const std::vector<int32_t> first{0, 1, 2, 3}, second{3, 1, 4, 0};
    const auto pass = [&](const ForwardInput& input) {
        const double loss = network.training().forward(input);
        network.backward();
        return std::pair(loss, all_gradients(network));
    };
    const std::span<const float> images = network.batch().images;
    const auto [loss_a, a] = pass({.images = images, .labels = first});
    const auto [loss_b, b] = pass({.images = images, .labels = second});
    const auto [loss, mixed] = pass({.images = images, .labels = first, .second_labels = second, .second_share = 0.3F});
    EXPECT_NEAR(loss, 0.7 * loss_a + 0.3 * loss_b, 1e-5);
    for (size_t parameter = 0; parameter < mixed.size(); ++parameter) {
        std::vector<float> expected(mixed[parameter].size());
        for (size_t at = 0; at < expected.size(); ++at) expected[at] = 0.7F * a[parameter][at] + 0.3F * b[parameter][at];
        EXPECT_LE(relative_error(mixed[parameter], expected), kRounding) << network.parameter_names()[parameter];
    }
    // Forgotten by the next pass.
    EXPECT_EQ(pass({.images = images, .labels = first}).second, a);
    const std::vector<int32_t> bad{0, 1, 5, 0};
    EXPECT_THROW(pass({.images = images, .labels = first, .second_labels = bad, .second_share = 0.3F}), DataError);
}

TEST_P(ExecutorContract, BackwardOverwritesWhateverTheGradientsHeld) {
    TestNetwork network(tiny("tiny_bn"), options());
    network.forward();
    network.backward();
    const auto expected = all_gradients(network);
    for (const std::string& name : network.parameter_names()) {
        std::ranges::fill(network.arena().gradient(*network.arena().find(name)), 100.0F);
    }
    network.forward();
    network.backward();
    EXPECT_EQ(all_gradients(network), expected);
}

TEST_P(ExecutorContract, AccumulateAddsToGradientsAndStatistics) {
    TestNetwork network(tiny("tiny_bn"), options());
    network.forward();
    network.backward();
    const auto once = all_gradients(network);
    network.forward();
    network.backward(true);
    const auto twice = all_gradients(network);
    for (size_t parameter = 0; parameter < once.size(); ++parameter) {
        std::vector<float> doubled = once[parameter];
        for (float& element : doubled) element *= 2.0F;
        EXPECT_LE(relative_error(twice[parameter], doubled), kRounding) << network.parameter_names()[parameter];
    }
}

TEST_P(ExecutorContract, GradientsAreSumsOverImagesSoMicroBatchesAddUp) {
    TestNetwork network(tiny("tiny_cnn"), options(4));
    network.forward();
    network.backward();
    const auto whole = all_gradients(network);
    const auto half = network.compile(2, Phase::training);
    const std::span<const float> images = network.batch().images;
    const std::span<const int32_t> labels = network.batch().labels;
    for (size_t part = 0; part < 2; ++part) {
        half->forward(
            {.images = images.subspan(part * images.size() / 2, images.size() / 2), .labels = labels.subspan(part * 2, 2)});
        half->backward(part > 0, nullptr);
    }
    const auto parts = all_gradients(network);
    for (size_t parameter = 0; parameter < whole.size(); ++parameter) {
        EXPECT_LE(relative_error(parts[parameter], whole[parameter]), kRounding) << network.parameter_names()[parameter];
    }
}

TEST_P(ExecutorContract, TheControlEntryIsLeftAlone) {
    TestNetwork network(tiny("tiny_bn"), options());
    std::ranges::fill(network.arena().control(), 7.0F);
    network.forward();
    network.backward();
    network.forward();
    network.backward(true);
    EXPECT_THAT(network.arena().control(), ::testing::Each(7.0F));
}

TEST_P(ExecutorContract, TheSinkHearsRisingEndsUpToAllEntries) {
    TestNetwork network(tiny("tiny_bn"), options());
    RecordingSink sink;
    network.forward();
    network.backward(false, &sink);
    ASSERT_FALSE(sink.ends.empty());
    EXPECT_TRUE(std::ranges::is_sorted(sink.ends, std::less_equal{}));
    EXPECT_EQ(sink.ends.back(), network.arena().entries().size() - 1);
    EXPECT_GT(sink.ends.size(), 3U) << "the last layers must not wait for the first";
}

// Copies what has been announced at the moment of the announcement.
class CopyingSink final : public GradientSink {
public:
    explicit CopyingSink(ParameterArena& arena) : arena_(arena) {}
    void ready_up_to(size_t entry_end) override {
        for (; next_ < entry_end; ++next_) {
            const std::span<float> gradient = arena_.gradient(next_);
            copies.emplace_back(gradient.begin(), gradient.end());
        }
    }
    std::vector<std::vector<float>> copies;

private:
    ParameterArena& arena_;
    size_t next_ = 0;
};

TEST_P(ExecutorContract, GradientsAreFinalWhenTheSinkHearsOfThem) {
    TestNetwork network(tiny("tiny_bn"), options());
    std::ranges::fill(network.arena().gradients(), 1.0F);
    CopyingSink sink(network.arena());
    network.forward();
    network.backward(true, &sink);
    ASSERT_EQ(sink.copies.size(), network.arena().entries().size() - 1);
    for (size_t entry = 0; entry < sink.copies.size(); ++entry) {
        const std::span<float> final_gradient = network.arena().gradient(entry);
        EXPECT_TRUE(std::ranges::equal(sink.copies[entry], final_gradient)) << network.arena().entries()[entry].spec.name;
    }
}

TEST_P(ExecutorContract, StatisticsEntriesHoldMeanAndUnbiasedVarianceTimesImages) {
    constexpr int kBatch = 3, kChannels = 17, kPlane = 4 * 5;
    TestNetwork network(graph_with({.channels = kChannels, .height = 4, .width = 5}, "bn", BatchNormOp{}), options(kBatch));
    network.forward();
    network.backward();
    const std::vector<float> means = network.gradient("bn.running_mean");
    const std::vector<float> variances = network.gradient("bn.running_var");
    for (size_t channel = 0; channel < kChannels; ++channel) {
        double sum = 0.0, squares = 0.0;
        for (size_t image = 0; image < kBatch; ++image) {
            for (size_t element = 0; element < kPlane; ++element) {
                const double value = network.batch().images[(image * kChannels + channel) * kPlane + element];
                sum += value;
                squares += value * value;
            }
        }
        constexpr double kCount = kBatch * kPlane;
        const double mean = sum / kCount;
        EXPECT_NEAR(means[channel], kBatch * mean, 1e-5);
        EXPECT_NEAR(variances[channel], kBatch * (squares - kCount * mean * mean) / (kCount - 1), 1e-4);
    }
}

TEST_P(ExecutorContract, TrainingIgnoresTheRunningStatistics) {
    TestNetwork network(tiny("tiny_bn"), options());
    const double loss = network.forward();
    network.set_value("bn1.running_mean", std::vector<float>(8, 3.0F));
    network.set_value("bn1.running_var", std::vector<float>(8, 9.0F));
    EXPECT_EQ(network.forward(), loss);
}

TEST_P(ExecutorContract, EvaluationUsesTheRunningStatisticsAndNoOtherImage) {
    const Graph graph = graph_with({.channels = 2, .height = 1, .width = 1}, "bn", BatchNormOp{.epsilon = 0.25F}, 2);
    TestNetwork network(graph, options(2));
    network.set_value("bn.weight", {2.0F, 1.0F});
    network.set_value("bn.bias", {0.5F, 0.0F});
    network.set_value("bn.running_mean", {1.0F, -1.0F});
    network.set_value("bn.running_var", {0.75F, 3.75F});
    network.set_value("fc.weight", {1.0F, 0.0F, 0.0F, 1.0F});
    network.set_value("fc.bias", {0.0F, 0.0F});
    const auto executor = network.compile(2, Phase::evaluation);
    const std::vector<float> images{3.0F, 1.0F, 0.0F, 0.0F};  // two images of two channels
    const std::vector<int32_t> labels{0, 1};
    executor->forward({.images = images, .labels = labels});
    const std::vector<float> expected{2.0F * 2.0F + 0.5F, 1.0F, -1.5F, 0.5F};
    for (size_t element = 0; element < expected.size(); ++element)
        EXPECT_NEAR(executor->logits()[element], expected[element], 1e-5);
}

TEST_P(ExecutorContract, ABatchOfOneWithAOnePixelMapGivesNoNaN) {
    TestNetwork network(graph_with({.channels = 3, .height = 1, .width = 1}, "bn", BatchNormOp{}), options(1));
    EXPECT_TRUE(std::isfinite(network.forward()));
    network.backward();
    for (const std::string& name : network.parameter_names()) {
        for (const float element : network.gradient(name)) EXPECT_TRUE(std::isfinite(element)) << name;
    }
    EXPECT_EQ(network.gradient("bn.running_var"), std::vector<float>(3, 0.0F)) << "biased variance of one value";
    EXPECT_EQ(network.gradient("bn.running_mean"), network.batch().images);
}

TEST_P(ExecutorContract, EvaluationCountsNothingForSlotsWithoutImage) {
    TestNetwork network(tiny("tiny_bn"), options(4));
    const auto whole = network.compile(4, Phase::evaluation);
    const double all = whole->forward(network.batch().input());
    const std::vector<float> losses(whole->losses().begin(), whole->losses().end());
    network.batch().labels[1] = -1;
    const double without = whole->forward(network.batch().input());
    EXPECT_NEAR(without, all - losses[1], 1e-5);
    EXPECT_EQ(whole->losses()[1], 0.0F);
    EXPECT_NEAR(whole->losses()[0], losses[0], 1e-6);
}

TEST_P(ExecutorContract, LabelsOutsideTheClassesAreRefusedWithTheirPlace) {
    TestNetwork network(tiny("tiny_cnn"), options(3));
    for (const int32_t bad_label : {-1, 5, -2, 1000000}) {
        network.batch().labels[1] = bad_label;
        EXPECT_THROW(network.forward(), DataError) << bad_label;
    }
}

TEST_P(ExecutorContract, ABatchOfNoneIsRefused) {
    TestNetwork network(tiny("tiny_cnn"), options());
    EXPECT_THROW(network.compile(0, Phase::training), ConfigError);
}

TEST_P(ExecutorContract, ExecutorsOfOneArenaDoNotDisturbEachOther) {
    TestNetwork network(tiny("tiny_bn"), options(4));
    network.forward();
    network.backward();
    const auto alone = all_gradients(network);
    const auto evaluation = network.compile(5, Phase::evaluation);
    const auto small = network.compile(1, Phase::training);
    const TestBatch five = random_batch(network.graph(), 5, 8);
    const TestBatch one = random_batch(network.graph(), 1, 9);
    small->forward(one.input());
    small->backward(false, nullptr);
    evaluation->forward(five.input());
    network.forward();
    network.backward();
    EXPECT_EQ(all_gradients(network), alone);
}

TEST_P(ExecutorContract, TheSameInputGivesTheSameBits) {
    const Graph graph = tiny("tiny_bn", 17);
    TestNetwork first(graph, options(5));
    TestNetwork second(graph, options(5));
    for (TestNetwork* network : {&first, &second}) {
        network->forward();
        network->backward();
    }
    EXPECT_EQ(all_gradients(first), all_gradients(second));
    EXPECT_TRUE(std::ranges::equal(first.training().logits(), second.training().logits()));
}

TEST_P(ExecutorContract, DropoutFollowsItsKeyOpAndElement) {
    constexpr float kProbability = 0.5F;
    const Graph graph = graph_with({.channels = 3, .height = 2, .width = 3}, "drop", DropoutOp{.probability = kProbability}, 18);
    TestNetwork network(graph, options(2));
    std::vector<float> identity(18 * 18);
    for (size_t row = 0; row < 18; ++row) identity[row * 18 + row] = 1.0F;
    network.set_value("fc.weight", identity);
    network.set_value("fc.bias", std::vector<float>(18));
    for (const uint64_t key : {uint64_t{1}, uint64_t{1} << 40}) {
        network.batch().dropout_key = key;
        network.forward();
        std::vector<float> expected(36);
        fill_dropout_factors(key, 1, kProbability, 0, expected);
        for (size_t element = 0; element < 36; ++element) {
            EXPECT_NEAR(network.training().logits()[element], expected[element] * network.batch().images[element], 1e-5);
        }
    }
    const auto evaluation = network.compile(2, Phase::evaluation);
    evaluation->forward(network.batch().input());
    for (size_t element = 0; element < 36; ++element) {
        EXPECT_NEAR(evaluation->logits()[element], network.batch().images[element], 1e-5);
    }
}

TEST_P(ExecutorContract, AStepAllocatesNothing) {
    TestNetwork network(build_model({.arch = "resnet20", .num_classes = 5, .image_size = 8, .dropout = 0.2F}), options(2));
    const auto evaluation = network.compile(2, Phase::evaluation);
    RecordingSink sink;
    sink.ends.reserve(1000);
    const auto step = [&] {
        network.forward();
        network.backward(false, &sink);
        network.forward();
        network.backward(true, &sink);
        evaluation->forward(network.batch().input());
    };
    step();
    const int64_t before = heap_allocation_count();
    step();
    EXPECT_EQ(heap_allocation_count() - before, 0);
}

TEST_P(ExecutorContract, MemoryUseIsReported) {
    TestNetwork network(tiny("tiny_bn"), options());
    const MemoryUse use = network.training().memory();
    EXPECT_GT(use.activation_bytes, 0U);
    EXPECT_LE(use.activation_bytes, use.activation_bytes_unshared);
}

INSTANTIATE_TEST_SUITE_P(Backends, ExecutorContract, ::testing::ValuesIn(backends_under_test()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lockstep::testing_support
