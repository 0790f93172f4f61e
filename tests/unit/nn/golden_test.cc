// Numbers of an independent program (tests/golden/make_golden.py: PyTorch in double precision): logits, loss and every gradient of
// ResNet-50, AlexNet, VGG-A and the paper's GoogLeNet with its auxiliary heads, and ten SGD steps of ResNet-20 with the optimizer
// of training.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/models.h"
#include "optim/optimizer.h"
#include "tests/support/backends.h"
#include "tests/support/test_network.h"

namespace lockstep::testing_support {
namespace {

using Json = nlohmann::json;

// Each of the following is at most this: |loss - golden| / |golden|; || logits - golden || / || golden ||; | norm - golden | /
// golden of each tensor; the error of a sampled element over the root mean square of its tensor's elements or over the element
// itself.
constexpr double kTolerance = 1e-4;
constexpr double kFastTolerance = 1e-3;  // with convolutions by Winograd's algorithm, which rounds more

Json read_golden(const std::string& name) {
    std::ifstream file(std::filesystem::path(LOCKSTEP_GOLDEN_DIR) / name);
    check(file.good(), "golden file missing");
    return Json::parse(file);
}

uint32_t name_seed(std::string_view name) {  // FNV-1a
    uint32_t seed = 2166136261U;
    for (const char byte : name) seed = (seed ^ static_cast<uint8_t>(byte)) * 16777619U;
    return seed;
}

// The formula of make_golden.py: 32 bits for each element of a named tensor.
uint32_t mixed(uint32_t seed, uint32_t element) {
    uint32_t x = element * 2654435761U + seed;
    x = (x ^ (x >> 16)) * 0x7FEB352DU;
    x = (x ^ (x >> 15)) * 0x846CA68BU;
    return x ^ (x >> 16);
}
uint32_t hashed(std::string_view name, uint32_t element) { return mixed(name_seed(name), element); }

std::vector<float> noise(std::string_view name, size_t count) {  // uniform in [-1, 1)
    std::vector<float> values(count);
    const uint32_t seed = name_seed(name);
    for (size_t element = 0; element < count; ++element) {
        values[element] = static_cast<float>(mixed(seed, static_cast<uint32_t>(element)) >> 8) * 0x1.0p-23F - 1.0F;
    }
    return values;
}

float affine(float noise_value, const Json& middle_and_spread) {
    return middle_and_spread[0].get<float>() + noise_value * middle_and_spread[1].get<float>();
}

float shift_from(float noise_value, std::string_view name, const Json& start) {
    const float shift = affine(noise_value, start["bn_shift"]);
    return name.ends_with(".bn1.bias") && noise_value < -0.25F ? -shift : shift;
}

float weight_scale(const ParameterSpec& spec, const Json& start) {
    const auto fan_in = static_cast<double>(element_count(spec.shape) / spec.shape.front());
    const auto scale = static_cast<float>(std::sqrt(6.0 / fan_in));
    return spec.name == "fc.weight" ? scale * start["fc_weight"].get<float>() : scale;
}

// A letter of make_golden.py's MOVE_LETTERS as a multiple of 1/128.
float shift_move(char letter) {
    constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    return (static_cast<float>(kLetters.find(letter)) - 32.0F) / 128.0F;
}

std::vector<float> start_value(const ParameterSpec& spec, const Json& golden) {
    const Json& start = golden["start"];
    std::vector<float> values = noise(spec.name, static_cast<size_t>(element_count(spec.shape)));
    for (float& value : values) {
        switch (spec.kind) {
            case ParameterKind::weight:
                value *= weight_scale(spec, start);
                break;
            case ParameterKind::bias:
                value *= 0.125F;
                break;
            case ParameterKind::bn_scale:
                value = affine(value, start["bn_scale"]);
                break;
            case ParameterKind::bn_shift:
                value = shift_from(value, spec.name, start);
                break;
            default:
                value = spec.kind == ParameterKind::bn_variance ? 1.0F : 0.0F;
        }
    }
    const auto moves = golden.value("shift_moves", std::map<std::string, std::string>());
    const auto own = moves.find(spec.name);
    for (size_t channel = 0; own != moves.end() && channel < values.size(); ++channel)
        values[channel] += shift_move(own->second.at(channel));
    return values;
}

TestBatch golden_batch(const std::string& prefix, const Json& golden) {
    const auto images = golden["batch"].get<size_t>();
    const auto size = golden["image_size"].get<size_t>();
    TestBatch batch{.images = noise(prefix + ".images", images * 3 * size * size)};
    for (float& pixel : batch.images) pixel *= static_cast<float>(std::sqrt(3.0));
    for (uint32_t image = 0; image < images; ++image) {
        batch.labels.push_back(static_cast<int32_t>(hashed(prefix + ".labels", image) % golden["classes"].get<uint32_t>()));
    }
    return batch;
}

TestNetwork golden_network(const std::string& backend, const std::string& arch, const Json& golden, int state_buffers = 0,
                           bool exact = true) {
    Graph graph = build_model({.arch = arch,
                               .variant = golden.value("variant", "auto"),
                               .num_classes = golden["classes"].get<int64_t>(),
                               .image_size = golden["image_size"].get<int64_t>()});
    for (Op& op : graph.ops) {  // no two programs drop the same elements; narrow classifiers save time
        if (auto* dropout = std::get_if<DropoutOp>(&op.attributes)) dropout->probability = 0.0F;
        auto* layer = std::get_if<FullyConnectedOp>(&op.attributes);
        if (layer != nullptr && layer->out_features == 4096) layer->out_features = golden["hidden"];
        if (auto* lrn = std::get_if<LrnOp>(&op.attributes)) lrn->alpha = golden["lrn_alpha"];
    }
    TestNetwork network(graph,
                        {.backend = backend, .batch = golden["batch"].get<int>(), .state_buffers = state_buffers, .exact = exact});
    for (const std::string& name : network.parameter_names()) {
        network.set_value(name, start_value(network.arena().entries()[*network.arena().find(name)].spec, golden));
    }
    return network;
}

// The largest error of all comparisons of a test, so that it can be seen how far the bound is.
class Worst {
public:
    explicit Worst(double tolerance = kTolerance) : tolerance_(tolerance) {}
    void expect(double error, const std::string& what) {
        EXPECT_LE(error, tolerance_) << what;
        if (!(error <= error_)) {
            error_ = error;
            what_ = what;
        }
    }
    ~Worst() { std::cout << fmt::format("largest relative error {:.2e}: {}\n", error_, what_); }

private:
    const double tolerance_;
    double error_ = 0.0;
    std::string what_ = "none";
};

// `floor`: tensors with a smaller norm are measured as if they had this one.
void expect_tensor(Worst& worst, const std::string& name, const std::vector<float>& actual, const Json& golden, double floor) {
    const double golden_norm = std::max(golden["norm"].get<double>(), floor);
    worst.expect(std::abs(norm(actual) - golden["norm"].get<double>()) / golden_norm, "norm of " + name);
    const double root_mean_square = golden_norm / std::sqrt(static_cast<double>(actual.size()));
    for (uint32_t sample = 0; sample < golden["samples"].size(); ++sample) {
        const size_t place = hashed(name + ".places", sample) % actual.size();
        const auto expected = golden["samples"][sample].get<double>();
        const double scale = std::max(std::abs(expected), root_mean_square);
        worst.expect(std::abs(actual[place] - expected) / scale, fmt::format("element {} of {}", place, name));
    }
}

struct GoldenSet {
    std::string backend, network;
    int image_size = 0;
    size_t gradients = 0;  // how many tensors have one
    bool exact = true;     // compute.exact_convolution
};
void PrintTo(const GoldenSet& set, std::ostream* out) { *out << set.network << " " << set.image_size; }

// The plain loops of the reference take the small images only.
std::vector<GoldenSet> golden_sets(const std::string& network, int small_size, int large_size, size_t gradients = 0) {
    std::vector<GoldenSet> sets;
    for (const std::string& backend : backends_under_test()) {
        sets.push_back({backend, network, small_size, gradients});
        if (backend != "reference") sets.push_back({backend, network, large_size, gradients});
    }
    return sets;
}

std::vector<GoldenSet> classic_sets() {
    std::vector<GoldenSet> sets;
    for (const std::string& backend : backends_under_test()) {
        sets.push_back({backend, "alexnet", 64, 16});
        if (backend != "reference") sets.push_back({backend, "vgg_a", 32, 22});  // no op that AlexNet lacks
        sets.push_back({backend, "googlenet", 64, 128});
    }
    return sets;
}

// A batch norm's shift gradient is a sum whose terms mostly cancel, because the next batch norm removes a shift of all values: that
// of bn1 is exactly 0. So the gradients of scale and shift are measured as one vector; any other tensor alone.
double norm_of_pair(const ParameterArena& arena, const Json& gradients, const std::string& name) {
    const ParameterKind kind = arena.entries()[*arena.find(name)].spec.kind;
    if (kind != ParameterKind::bn_scale && kind != ParameterKind::bn_shift) return gradients[name]["norm"];
    const std::string stem = name.substr(0, name.rfind('.'));
    return std::hypot(gradients[stem + ".bias"]["norm"].get<double>(), gradients[stem + ".weight"]["norm"].get<double>());
}

class Golden : public ::testing::TestWithParam<GoldenSet> {
protected:
    Json golden() const { return read_golden(fmt::format("{}_{}.json", GetParam().network, GetParam().image_size)); }
};
class GoldenGradients : public Golden {};
class GoldenEvaluation : public Golden {};
class GoldenSteps : public Golden {};

TEST_P(GoldenGradients, LogitsLossAndEveryGradientAreThoseOfPyTorch) {
    const Json expected = golden();
    const std::string& arch = GetParam().network;
    TestNetwork network = golden_network(GetParam().backend, arch, expected, 0, GetParam().exact);
    network.batch() =
        golden_batch(expected.contains("salt") ? fmt::format("{}.{}", arch, expected["salt"].get<int>()) : arch, expected);
    Worst worst(GetParam().exact ? kTolerance : kFastTolerance);
    const double loss = network.forward();
    network.backward();
    worst.expect(std::abs(loss - expected["loss"].get<double>()) / expected["loss"].get<double>(), "loss");
    const std::span<const float> logits = network.training().logits();
    worst.expect(relative_error({logits.begin(), logits.end()}, expected["logits"].get<std::vector<float>>()), "logits");
    EXPECT_EQ(expected["gradients"].size(), GetParam().gradients);
    EXPECT_EQ(network.parameter_names(false).size(), GetParam().gradients);
    for (const auto& [name, gradient] : expected["gradients"].items())
        expect_tensor(worst, name, network.gradient(name), gradient, norm_of_pair(network.arena(), expected["gradients"], name));
}

// torchvision's forms of GoogLeNet and Inception v3, whose gradients bend too often in single precision: the forward pass.
TEST_P(GoldenEvaluation, LogitsAndLossAreThoseOfPyTorch) {
    const Json expected = golden();
    const std::string arch = GetParam().network.substr(0, GetParam().network.find("_evaluation"));
    TestNetwork network = golden_network(GetParam().backend, arch, expected);
    const TestBatch batch = golden_batch(arch, expected);
    const auto executor = network.compile(expected["batch"], Phase::evaluation);
    Worst worst;
    worst.expect(std::abs(executor->forward(batch.input()) - expected["loss"].get<double>()) / expected["loss"].get<double>(),
                 "loss");
    const std::span<const float> logits = executor->logits();
    worst.expect(relative_error({logits.begin(), logits.end()}, expected["logits"].get<std::vector<float>>()), "logits");
}

TEST_P(GoldenSteps, LossesAndFinalWeightsOfTenStepsAreThoseOfPyTorch) {
    const Json expected = golden();
    const std::unique_ptr<Optimizer> sgd =
        make_sgd({.momentum = expected["momentum"], .nesterov = true, .weight_decay = expected["weight_decay"]}, 1);
    TestNetwork network = golden_network(GetParam().backend, "resnet20", expected, sgd->state_buffer_count());
    const StepScale scale{.rate = expected["rate"], .images = expected["batch"]};
    Worst worst;
    for (size_t step = 0; step < expected["losses"].size(); ++step) {
        network.batch() = golden_batch(fmt::format("resnet20.{}.{}", step, expected["salts"][step].get<int>()), expected);
        const double loss = network.forward() / expected["batch"].get<double>();
        const auto golden_loss = expected["losses"][step].get<double>();
        worst.expect(std::abs(loss - golden_loss) / golden_loss, fmt::format("loss of step {}", step));
        network.backward();
        sgd->step(network.arena(), scale);
    }
    for (const auto& [name, final_value] : expected["final"].items())
        expect_tensor(worst, name, network.value(name), final_value, 0.0);
}

std::string test_name(const ::testing::TestParamInfo<GoldenSet>& test) {
    return fmt::format("{}_{}_{}{}", test.param.backend, test.param.network, test.param.image_size,
                       test.param.exact ? "" : "_fast");
}

INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenGradients, ::testing::ValuesIn(golden_sets("resnet50", 64, 224, 161)), test_name);
INSTANTIATE_TEST_SUITE_P(Winograd, GoldenGradients,
                         ::testing::Values(GoldenSet{"onednn", "resnet50", 224, 161, false},
                                           GoldenSet{"onednn", "vgg_a", 32, 22, false}),
                         test_name);
INSTANTIATE_TEST_SUITE_P(ClassicNetworks, GoldenGradients, ::testing::ValuesIn(classic_sets()), test_name);
INSTANTIATE_TEST_SUITE_P(ClassicNetworks, GoldenEvaluation,
                         ::testing::Values(GoldenSet{"onednn", "googlenet_evaluation", 64},
                                           GoldenSet{"onednn", "inception_v3_evaluation", 107}),
                         test_name);
INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenSteps, ::testing::ValuesIn(golden_sets("resnet20_sgd", 16, 32)), test_name);

}  // namespace
}  // namespace lockstep::testing_support
