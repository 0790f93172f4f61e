// What a compiled program promises besides its numbers: no needless reorders, shared memory, repeatable bits.
#include <cstring>

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/models.h"
#include "tests/support/test_network.h"

namespace lockstep::testing_support {
namespace {

TestNetwork network_of(const ModelOptions& model, int batch, int threads = 1) {
    return TestNetwork(build_model(model), {.backend = "onednn", .batch = batch, .threads = threads});
}

TEST(Program, ResidualNetworksReorderNoActivationInside) {
    EXPECT_EQ(network_of({.arch = "resnet20", .num_classes = 10, .image_size = 32}, 8).training().memory().reorders, 0);
    EXPECT_EQ(network_of({.arch = "resnet50", .image_size = 224}, 1).training().memory().reorders, 0);
}

TEST(Program, MemoryIsSharedByLifetime) {
    TestNetwork network = network_of({.arch = "resnet20", .num_classes = 10, .image_size = 32}, 8);
    const MemoryUse use = network.training().memory();
    EXPECT_LT(use.activation_bytes, use.activation_bytes_unshared * 7 / 10);
    EXPECT_GT(use.activation_bytes, 0U);
}

TEST(Program, RepeatedStepsGiveTheSameBits) {
    TestNetwork network = network_of({.arch = "resnet20", .num_classes = 10, .image_size = 32}, 8, 2);
    const double loss = network.forward();
    network.backward();
    const std::vector<float> first(network.arena().gradients().begin(), network.arena().gradients().end());
    for (int repeat = 0; repeat < 3; ++repeat) {
        EXPECT_EQ(network.forward(), loss);
        network.backward();
        EXPECT_EQ(std::memcmp(first.data(), network.arena().gradients().data(), first.size() * sizeof(float)), 0);
    }
}

TEST(Program, AnExecutorWorksAfterALargerOneMovedTheWorkspace) {
    TestNetwork network = network_of({.arch = "tiny_bn", .num_classes = 10, .image_size = 32}, 2);
    const double loss = network.forward();
    network.backward();
    const auto larger = network.compile(64, Phase::training);
    const TestBatch images = random_batch(network.graph(), 64, 3);
    larger->forward(images.input());
    larger->backward(false, nullptr);
    EXPECT_EQ(network.forward(), loss);
}

TEST(Program, ImagesMayBeRefilledAfterForward) {
    TestNetwork network = network_of({.arch = "tiny_cnn", .num_classes = 10, .image_size = 16}, 4);
    network.forward();
    network.backward();
    const std::vector<float> expected(network.arena().gradients().begin(), network.arena().gradients().end());
    network.forward();
    std::fill(network.batch().images.begin(), network.batch().images.end(), 0.0F);
    std::fill(network.batch().labels.begin(), network.batch().labels.end(), 0);
    network.backward();
    EXPECT_EQ(std::memcmp(expected.data(), network.arena().gradients().data(), expected.size() * sizeof(float)), 0);
}

TEST(Program, PaddingOfParametersStaysZero) {
    TestNetwork network = network_of({.arch = "tiny_bn", .num_classes = 10, .image_size = 16}, 4);
    network.forward();
    network.backward();
    for (size_t index = 0; index + 1 < network.arena().entries().size(); ++index) {
        const ParameterEntry& entry = network.arena().entries()[index];
        const std::vector<float> plain = network.gradient(entry.spec.name);
        double plain_sum = 0.0, physical_sum = 0.0;
        for (const float value : plain) plain_sum += std::abs(value);
        for (const float value : network.arena().gradient(index)) physical_sum += std::abs(value);
        EXPECT_NEAR(physical_sum, plain_sum, 1e-5 * plain_sum) << entry.spec.name;
    }
}

TEST(Program, ForeignLayoutsAreRefusedByName) {
    TestNetwork network = network_of({.arch = "tiny_cnn", .num_classes = 10, .image_size = 16}, 4);
    ParameterEntry entry = network.arena().entries().front();
    entry.layout = "Zyx8q";
    std::vector<float> physical(static_cast<size_t>(entry.physical_count)),
        plain(static_cast<size_t>(element_count(entry.spec.shape)));
    EXPECT_THROW(network.backend().to_plain(entry, physical, plain), ConfigError);
}

TEST(Program, LabelsOutsideTheClassesAreADataError) {
    TestNetwork network = network_of({.arch = "tiny_cnn", .num_classes = 10, .image_size = 16}, 4);
    network.batch().labels[1] = 10;
    EXPECT_THROW(network.forward(), DataError);
    network.batch().labels[1] = -1;
    EXPECT_THROW(network.forward(), DataError);
}

// Runs where the CPU has bf16 arithmetic; elsewhere the promise is the refusal.
TEST(Program, Bf16StepsAreNearFp32OrRefused) {
    const Graph graph = build_model({.arch = "resnet20", .num_classes = 10, .image_size = 32});
    std::unique_ptr<Backend> backend;
    try {
        backend = make_backend("onednn", {.threads = 1, .precision = Precision::bf16});
    } catch (const DeviceError& error) {
        EXPECT_NE(std::string(error.what()).find("bf16"), std::string::npos);
        return;
    }
    TestNetwork exact(graph, {.backend = "onednn", .batch = 8});
    HeapPool pool;
    ParameterArena arena(backend->plan_parameters(graph, 8), pool, pool, 0);
    for (size_t index = 0; index + 1 < arena.entries().size(); ++index) {
        backend->from_plain(arena.entries()[index], exact.value(arena.entries()[index].spec.name), arena.value(index));
    }
    const auto executor = backend->compile(graph, 8, Phase::training, arena);
    const double loss = exact.forward();
    EXPECT_NEAR(executor->forward(exact.batch().input()), loss, 0.05 * loss);  // bf16 keeps 8 bits: 0.4 % per rounding
    executor->backward(false, nullptr);
    exact.backward();
    const size_t last = 0;  // the last layer's weights: the shortest chain of roundings
    std::vector<float> gradient(static_cast<size_t>(element_count(arena.entries()[last].spec.shape)));
    backend->to_plain(arena.entries()[last], arena.gradient(last), gradient);
    EXPECT_LE(relative_error(gradient, exact.gradient(arena.entries()[last].spec.name)), 0.1);
}

}  // namespace
}  // namespace lockstep::testing_support
