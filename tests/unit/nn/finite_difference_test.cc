// Gradients against central differences of the loss, for every op and option on every backend.
#include <cmath>

#include <gtest/gtest.h>

#include "core/hash.h"
#include "core/random.h"
#include "tests/support/backends.h"
#include "tests/support/test_network.h"
#include "tests/unit/nn/network_cases.h"

namespace lockstep::testing_support {
namespace {

// A displacement is the Euclidean norm by which a parameter tensor moves. Losses are stored in fp32 (error about 5e-7 in their
// sum), which limits the quotient: `noise`. ReLU and max pooling bend; a bend inside the displacement moves the quotient, so those
// cases take a smaller one. `relative` is a share of the gradient's norm.
struct Accuracy {
    double displacement, noise, relative;
};
constexpr Accuracy kSmooth{.displacement = 0.01, .noise = 6e-4, .relative = 2e-3};
constexpr Accuracy kBending{.displacement = 0.0015, .noise = 2e-3, .relative = 1e-2};
constexpr int kRandomDirections = 3;
constexpr size_t kProbedElements = 6;

class FiniteDifference : public ::testing::TestWithParam<std::tuple<std::string, NetworkCase>> {};

double dot(const std::vector<float>& left, const std::vector<float>& right) {
    double sum = 0.0;
    for (size_t element = 0; element < left.size(); ++element) sum += static_cast<double>(left[element]) * right[element];
    return sum;
}

std::vector<float> unit(std::vector<float> direction) {
    const double length = norm(direction);
    for (float& element : direction) element = static_cast<float>(element / length);
    return direction;
}

std::vector<std::vector<float>> directions_for(const std::string& parameter, const std::vector<float>& gradient) {
    std::vector<std::vector<float>> directions;
    if (norm(gradient) > 0.0) directions.push_back(unit(gradient));
    RandomStream stream(3, "direction", hash_text(parameter));
    for (int index = 0; index < kRandomDirections; ++index) {
        std::vector<float> direction(gradient.size());
        for (float& element : direction) element = stream.normal();
        directions.push_back(unit(direction));
    }
    for (size_t probe = 0; probe < std::min(kProbedElements, gradient.size()); ++probe) {
        std::vector<float> direction(gradient.size());
        direction[gradient.size() <= kProbedElements ? probe : stream.below(gradient.size())] = 1.0F;
        directions.push_back(direction);
    }
    return directions;
}

double loss_at(TestNetwork& network, const std::string& parameter, const std::vector<float>& start,
               const std::vector<float>& direction, double step) {
    std::vector<float> moved(start.size());
    for (size_t element = 0; element < start.size(); ++element) {
        moved[element] = static_cast<float>(start[element] + step * direction[element]);
    }
    network.set_value(parameter, moved);
    const double loss = network.forward();
    network.set_value(parameter, start);
    return loss;
}

// Central differences at two displacements, combined so that the cubic term drops out (Richardson).
double slope_along(TestNetwork& network, const std::string& parameter, const std::vector<float>& start,
                   const std::vector<float>& direction, double displacement) {
    const auto quotient = [&](double step) {
        const double up = loss_at(network, parameter, start, direction, step);
        const double down = loss_at(network, parameter, start, direction, -step);
        return (up - down) / (2.0 * step);
    };
    return (4.0 * quotient(displacement) - quotient(2.0 * displacement)) / 3.0;
}

TEST_P(FiniteDifference, GradientIsTheSlopeOfTheLoss) {
    const auto& [backend, network_case] = GetParam();
    TestNetwork network(network_case.graph, {.backend = backend, .batch = network_case.batch, .seed = 11});
    const Accuracy& accuracy = network_case.bends ? kBending : kSmooth;
    network.forward();
    network.backward();
    for (const std::string& parameter : network.parameter_names(false)) {
        const std::vector<float> gradient = network.gradient(parameter);
        const std::vector<float> start = network.value(parameter);
        for (const std::vector<float>& direction : directions_for(parameter, gradient)) {
            const double slope = slope_along(network, parameter, start, direction, accuracy.displacement);
            EXPECT_NEAR(dot(gradient, direction), slope, accuracy.noise + accuracy.relative * norm(gradient)) << parameter;
        }
    }
}

std::string test_name(const ::testing::TestParamInfo<FiniteDifference::ParamType>& info) {
    return std::get<0>(info.param) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(EveryOp, FiniteDifference,
                         ::testing::Combine(::testing::ValuesIn(backends_under_test()), ::testing::ValuesIn(network_cases())),
                         test_name);

}  // namespace
}  // namespace lockstep::testing_support
