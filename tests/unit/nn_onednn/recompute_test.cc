// compute.recompute=norms against its slow twin in memory: keeping everything.
#include <algorithm>

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/models.h"
#include "tests/support/test_network.h"

namespace lockstep {
namespace {

using testing_support::TestNetwork;

struct Case {
    ModelOptions model;
    double most_memory;  // of what keeping everything takes
};

TestNetwork network_of(const ModelOptions& model, Recompute recompute) {
    return TestNetwork(build_model(model), {.backend = "onednn", .batch = 2, .threads = 2, .seed = 5, .recompute = recompute});
}

size_t remade(Executor& executor) {
    const std::vector<StepFacts> steps = executor.steps();
    return static_cast<size_t>(std::ranges::count_if(steps, [](const StepFacts& step) { return step.what == "batch norm again"; }));
}

TEST(Recompute, GivesTheSameBitsInLessMemory) {
    const std::vector<Case> cases = {
        {{.arch = "resnet50", .num_classes = 10, .image_size = 32}, 1.0},   // bottlenecks, shortcuts with a batch norm
        {{.arch = "resnet20", .num_classes = 10, .image_size = 32}, 0.85},  // shortcuts without
        {{.arch = "cifar10_full_sigmoid_bn", .num_classes = 10, .image_size = 32}, 1.0},  // nothing to make again
    };
    for (const Case& each : cases) {
        TestNetwork keeping = network_of(each.model, Recompute::off), again = network_of(each.model, Recompute::norms);
        EXPECT_EQ(remade(keeping.training()), 0U);
        for (const bool accumulate : {false, true}) {
            EXPECT_EQ(keeping.forward(), again.forward());
            keeping.backward(accumulate);
            again.backward(accumulate);
        }
        for (const std::string& name : keeping.parameter_names()) {
            ASSERT_EQ(keeping.gradient(name), again.gradient(name)) << each.model.arch << " " << name;
        }
        const auto bytes = [](TestNetwork& network) { return static_cast<double>(network.training().memory().activation_bytes); };
        EXPECT_LE(bytes(again), each.most_memory * bytes(keeping)) << each.model.arch;
        EXPECT_EQ(remade(again.training()) > 0, each.model.arch != "cifar10_full_sigmoid_bn") << each.model.arch;
    }
}

TEST(Recompute, NeedsTheBatchNormThatCanRunAgain) {
    EXPECT_THROW(make_backend("onednn", {.fusion = Fusion::bn_relu, .recompute = Recompute::norms}), ConfigError);
}

}  // namespace
}  // namespace lockstep
