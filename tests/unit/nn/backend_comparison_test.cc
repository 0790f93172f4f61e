// Every backend against the reference on the same parameters and images: small networks around each op, and whole ones. The
// reference itself runs on three threads against one and must agree bit by bit.
#include <gtest/gtest.h>

#include "models/models.h"
#include "tests/support/backends.h"
#include "tests/support/test_network.h"
#include "tests/unit/nn/network_cases.h"

namespace lockstep::testing_support {
namespace {

// Euclidean norm of the difference over the norm of the reference. fp32 sums in another order differ by about 1e-6 in each layer;
// deep networks multiply that.
constexpr double kTolerance = 1e-4;

std::vector<NetworkCase> compared_networks() {
    std::vector<NetworkCase> cases = network_cases();
    const auto add = [&](const std::string& name, const ModelOptions& options, int batch) {
        cases.push_back({.name = name, .graph = build_model(options), .batch = batch});
    };
    add("tiny_cnn", {.arch = "tiny_cnn", .num_classes = 3, .image_size = 9, .channels = 1, .dropout = 0.3F}, 5);
    add("tiny_bn", {.arch = "tiny_bn", .num_classes = 10, .image_size = 17}, 3);
    add("mnist_cnn", {.arch = "mnist_cnn", .num_classes = 10, .image_size = 28, .channels = 1}, 2);
    add("resnet20", {.arch = "resnet20", .num_classes = 10, .image_size = 16, .label_smoothing = 0.1F}, 4);
    add("cifar10_full_sigmoid_bn", {.arch = "cifar10_full_sigmoid_bn", .num_classes = 10, .image_size = 32}, 3);
    // Eight values per channel in the last batch norms: with two, rounding differences would be magnified a hundredfold.
    add("resnet18", {.arch = "resnet18", .num_classes = 17, .image_size = 16}, 8);
    return cases;
}

class BackendComparison : public ::testing::TestWithParam<std::tuple<std::string, NetworkCase>> {
protected:
    bool is_reference() const { return std::get<0>(GetParam()) == "reference"; }
    double tolerance() const { return is_reference() ? 0.0 : kTolerance; }

    TestNetwork make(const std::string& backend, int threads) const {
        const NetworkCase& network_case = std::get<1>(GetParam());
        return {network_case.graph, {.backend = backend, .batch = network_case.batch, .threads = threads, .seed = 21}};
    }
};

std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST_P(BackendComparison, LogitsLossesGradientsAndStatisticsAgreeWithTheReference) {
    TestNetwork expected = make("reference", 1);
    TestNetwork actual = make(std::get<0>(GetParam()), is_reference() ? 3 : 2);
    for (TestNetwork* network : {&expected, &actual}) {
        network->forward();
        network->backward();
    }
    EXPECT_LE(relative_error(copy(actual.training().logits()), copy(expected.training().logits())), tolerance());
    EXPECT_LE(relative_error(copy(actual.training().losses()), copy(expected.training().losses())), tolerance());
    // A gradient that is zero but for rounding (a bias before batch norm) is measured against the others.
    double largest = 0.0;
    for (const std::string& name : expected.parameter_names(false)) largest = std::max(largest, norm(expected.gradient(name)));
    for (const std::string& name : expected.parameter_names()) {
        const std::vector<float> gradient = expected.gradient(name);
        const double scale = std::max(norm(gradient), 1e-3 * largest);
        EXPECT_LE(distance(actual.gradient(name), gradient), tolerance() * scale) << name;
    }
}

TEST_P(BackendComparison, EvaluationAgreesWithTheReference) {
    TestNetwork expected = make("reference", 1);
    TestNetwork actual = make(std::get<0>(GetParam()), is_reference() ? 3 : 2);
    const int batch = std::get<1>(GetParam()).batch + 1;
    const TestBatch images = random_batch(expected.graph(), batch, 4);
    const auto expected_executor = expected.compile(batch, Phase::evaluation);
    const auto actual_executor = actual.compile(batch, Phase::evaluation);
    expected_executor->forward(images.input());
    actual_executor->forward(images.input());
    EXPECT_LE(relative_error(copy(actual_executor->logits()), copy(expected_executor->logits())), tolerance());
}

std::string test_name(const ::testing::TestParamInfo<BackendComparison::ParamType>& info) {
    return std::get<0>(info.param) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Networks, BackendComparison,
                         ::testing::Combine(::testing::ValuesIn(backends_under_test()), ::testing::ValuesIn(compared_networks())),
                         test_name);

}  // namespace
}  // namespace lockstep::testing_support
