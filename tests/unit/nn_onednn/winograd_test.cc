// The Winograd kernels against the formula of a convolution, summed in double precision.
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/random.h"
#include "nn/onednn/kernels/winograd.h"
#include "tests/support/fenced_floats.h"
#include "tests/support/test_network.h"

namespace lockstep::onednn {
namespace {

using testing_support::FencedFloats;
using testing_support::relative_error;

// F(4x4, 3x3) and F(4x4, 5x5) multiply rounding errors by a few tens: 1e-6 is usual, the bound leaves room for unlucky sums.
constexpr double kTolerance = 2e-5;

struct WinogradCase {
    const char* name;
    WinogradShape shape;
};
void PrintTo(const WinogradCase& test, std::ostream* out) { *out << test.name; }

std::vector<WinogradCase> cases() {
    return {
        {"OneTile", {.images = 1, .in_blocks = 1, .out_blocks = 1, .height = 4, .width = 4}},
        {"OnePixel", {.images = 1, .in_blocks = 1, .out_blocks = 2, .height = 1, .width = 1}},
        {"OddSizes", {.images = 3, .in_blocks = 2, .out_blocks = 3, .height = 7, .width = 13}},
        {"OddBlocks", {.images = 2, .in_blocks = 5, .out_blocks = 7, .height = 9, .width = 6}},
        {"FourAndEightBlocks", {.images = 1, .in_blocks = 4, .out_blocks = 8, .height = 10, .width = 5}},
        {"NoPad", {.images = 2, .in_blocks = 3, .out_blocks = 1, .height = 8, .width = 11, .pad = 0}},
        {"WidePad", {.images = 2, .in_blocks = 1, .out_blocks = 4, .height = 5, .width = 3, .pad = 2}},
        {"FiveOneTile", {.images = 1, .in_blocks = 1, .out_blocks = 1, .height = 4, .width = 4, .kernel = 5, .pad = 2}},
        {"FiveOddSizes", {.images = 2, .in_blocks = 2, .out_blocks = 3, .height = 7, .width = 11, .kernel = 5, .pad = 2}},
        {"FiveNoPad", {.images = 2, .in_blocks = 3, .out_blocks = 1, .height = 8, .width = 9, .kernel = 5, .pad = 0}},
        {"FiveWidePad", {.images = 1, .in_blocks = 1, .out_blocks = 2, .height = 5, .width = 3, .kernel = 5, .pad = 4}},
        {"FiveManyTiles", {.images = 4, .in_blocks = 1, .out_blocks = 1, .height = 33, .width = 29, .kernel = 5, .pad = 1}},
        {"FiveInShares", {.images = 10, .in_blocks = 2, .out_blocks = 1, .height = 33, .width = 29, .kernel = 5, .pad = 1}},
        {"ManyTiles", {.images = 5, .in_blocks = 1, .out_blocks = 1, .height = 41, .width = 38}},
    };
}

FencedFloats noise(size_t count, const char* name) {
    FencedFloats values(count);
    RandomStream stream(7, name);
    for (size_t place = 0; place < count; ++place) values[place] = stream.normal();
    return values;
}

class Winograd : public ::testing::TestWithParam<WinogradCase> {
protected:
    void SetUp() override {
        if (!winograd_runs_here(shape.block)) GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512";
        source = noise(static_cast<size_t>(shape.images * in() * shape.height * shape.width), "source");
        weights = noise(static_cast<size_t>(shape.kernel * shape.kernel * in() * out()), "weights");
        bias = noise(static_cast<size_t>(out()), "bias");
        gradient = noise(static_cast<size_t>(shape.images * out() * shape.out_height() * shape.out_width()), "gradient");
    }
    void TearDown() override { omp_set_num_threads(1); }

    int64_t in() const { return shape.in_blocks * shape.block; }
    int64_t out() const { return shape.out_blocks * shape.block; }
    size_t source_at(int64_t n, int64_t c, int64_t y, int64_t x) const {
        return static_cast<size_t>((((n * in() + c) / 8 * shape.height + y) * shape.width + x) * 8 + c % 8);
    }
    size_t result_at(int64_t n, int64_t c, int64_t y, int64_t x) const {
        return static_cast<size_t>((((n * out() + c) / 8 * shape.out_height() + y) * shape.out_width() + x) * 8 + c % 8);
    }
    size_t weight_at(int64_t o, int64_t i, int64_t y, int64_t x) const {
        return static_cast<size_t>(
            (((o / 8 * shape.in_blocks + i / 8) * shape.kernel * shape.kernel + y * shape.kernel + x) * 8 + i % 8) * 8 + o % 8);
    }

    // work(place in source, in weights, in result) for each product of the convolution.
    template <typename Work>
    void for_each_product(const Work& work) const {
        for (int64_t n = 0; n < shape.images; ++n)
            for (int64_t o = 0; o < out(); ++o)
                for (int64_t y = 0; y < shape.out_height(); ++y)
                    for (int64_t x = 0; x < shape.out_width(); ++x)
                        for (int64_t tap = 0; tap < shape.kernel * shape.kernel; ++tap) {
                            const int64_t ky = tap / shape.kernel, kx = tap % shape.kernel;
                            const int64_t row = y + ky - shape.pad, column = x + kx - shape.pad;
                            if (row < 0 || column < 0 || row >= shape.height || column >= shape.width) continue;
                            for (int64_t i = 0; i < in(); ++i)
                                work(source_at(n, i, row, column), weight_at(o, i, ky, kx), result_at(n, o, y, x));
                        }
    }

    static std::vector<float> rounded(const std::vector<double>& values) { return {values.begin(), values.end()}; }

    // Enough for up to 3 threads, as a network asks for it, and not a line more.
    static FencedFloats scratch(size_t count) { return FencedFloats(count, std::numeric_limits<float>::quiet_NaN()); }

    std::vector<float> forward(WinogradForward call) const {
        FencedFloats result(gradient.size()), memory = scratch(winograd_forward_scratch(shape, 3, call.kept != nullptr));
        call.source = source.data();
        call.weights = weights.data();
        call.result = result.data();
        call.scratch = memory.data();
        winograd_forward(shape, call);
        return result.values();
    }
    std::vector<float> forward(bool relu, WinogradKept* kept = nullptr) const {
        return forward({.bias = relu ? bias.data() : nullptr, .relu = relu, .kept = kept});
    }
    std::vector<float> source_gradient() {
        FencedFloats result(source.size()), memory = scratch(winograd_source_gradient_scratch(shape, 3));
        winograd_source_gradient(shape, {.result_gradient = gradient.data(),
                                         .weights = weights.data(),
                                         .source_gradient = result.data(),
                                         .scratch = memory.data()});
        return result.values();
    }
    // The weights', then the bias'.
    std::vector<float> weight_gradient(bool accumulate, float start) {
        FencedFloats of_weights(weights.size(), start), of_bias(bias.size(), start),
            memory = scratch(winograd_weight_gradient_scratch(shape, 3));
        winograd_weight_gradient(shape, {.source = source.data(),
                                         .result_gradient = gradient.data(),
                                         .weight_gradient = of_weights.data(),
                                         .bias_gradient = of_bias.data(),
                                         .accumulate = accumulate,
                                         .scratch = memory.data()});
        std::vector<float> result = of_weights.values();
        std::ranges::copy(of_bias.values(), std::back_inserter(result));
        return result;
    }

    const WinogradShape shape = GetParam().shape;
    FencedFloats source, weights, bias, gradient;
};

TEST_P(Winograd, ForwardIsTheConvolution) {
    std::vector<double> expected(gradient.size());
    for_each_product(
        [&](size_t from, size_t weight, size_t to) { expected[to] += static_cast<double>(source[from]) * weights[weight]; });
    EXPECT_LE(relative_error(forward(false), rounded(expected)), kTolerance);
    for (size_t place = 0; place < expected.size(); ++place) {
        const size_t plane = static_cast<size_t>(shape.out_height() * shape.out_width() * 8);
        const size_t channel = place / plane % static_cast<size_t>(shape.out_blocks) * 8 + place % 8;
        expected[place] = std::max(0.0, expected[place] + bias[channel]);
    }
    EXPECT_LE(relative_error(forward(true), rounded(expected)), kTolerance);
}

TEST_P(Winograd, ForwardFinishesItsSums) {
    const std::vector<float> sums = forward(false);
    const FencedFloats scale = noise(bias.size(), "scale"), addend = noise(gradient.size(), "addend");
    const std::vector<float> result = forward({.scale = scale.data(), .bias = bias.data(), .addend = addend.data(), .relu = true});
    const size_t plane = static_cast<size_t>(shape.out_height() * shape.out_width() * 8);
    for (size_t place = 0; place < result.size(); ++place) {
        const size_t channel = place / plane % static_cast<size_t>(shape.out_blocks) * 8 + place % 8;
        const float expected = std::max(0.0F, sums[place] * scale[channel] + bias[channel] + addend[place]);
        ASSERT_NEAR(result[place], expected, 1e-6 * (std::abs(sums[place] * scale[channel]) + 4.0)) << place;  // fused or not
    }
}

TEST_P(Winograd, KeptWeightsFollowEveryChange) {
    WinogradKept kept(shape);
    for (const int threads : {1, 2, 3}) {
        omp_set_num_threads(threads);
        for (const size_t place : {size_t{0}, weights.size() / 2, weights.size() - 1}) {
            weights[place] += 1.0F;
            const std::vector<float> expected = forward(true);
            for (const char* when : {"after a change", "again"}) {
                const std::vector<float> actual = forward(true, &kept);
                EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0) << when << ", " << place;
            }
        }
    }
}

TEST_P(Winograd, SourceGradientIsTheConvolutionsAdjoint) {
    std::vector<double> expected(source.size());
    for_each_product(
        [&](size_t from, size_t weight, size_t to) { expected[from] += static_cast<double>(gradient[to]) * weights[weight]; });
    EXPECT_LE(relative_error(source_gradient(), rounded(expected)), kTolerance);
}

TEST_P(Winograd, WeightGradientIsWrittenOrAdded) {
    std::vector<double> expected(weights.size() + bias.size());
    for_each_product(
        [&](size_t from, size_t weight, size_t to) { expected[weight] += static_cast<double>(gradient[to]) * source[from]; });
    for (size_t place = 0; place < gradient.size(); ++place) {
        const size_t plane = static_cast<size_t>(shape.out_height() * shape.out_width() * 8);
        expected[weights.size() + place / plane % static_cast<size_t>(shape.out_blocks) * 8 + place % 8] += gradient[place];
    }
    EXPECT_LE(relative_error(weight_gradient(false, 9.0F), rounded(expected)), kTolerance);
    for (double& value : expected) value += 2.0;
    EXPECT_LE(relative_error(weight_gradient(true, 2.0F), rounded(expected)), kTolerance);
}

TEST_P(Winograd, BitsDoNotDependOnThreads) {
    const auto same = [](const std::vector<float>& left, const std::vector<float>& right) {
        return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
    };
    omp_set_num_threads(1);
    const auto result = forward(true), from_result = source_gradient(), of_weights = weight_gradient(false, 0.0F);
    for (const int threads : {2, 3}) {
        omp_set_num_threads(threads);
        EXPECT_TRUE(same(forward(true), result)) << threads;
        EXPECT_TRUE(same(source_gradient(), from_result)) << threads;
        EXPECT_TRUE(same(weight_gradient(false, 0.0F), of_weights)) << threads;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Winograd, ::testing::ValuesIn(cases()), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lockstep::onednn
