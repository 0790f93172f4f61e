// The kernel for 1x1 convolutions against the formula, summed in double precision.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/random.h"
#include "nn/onednn/kernels/pointwise.h"
#include "tests/support/fenced_floats.h"
#include "tests/support/test_network.h"

namespace lockstep::onednn {
namespace {

using testing_support::FencedFloats;
using testing_support::relative_error;

// Up to some thousand products are added one by one in fp32: rounding errors of 6e-8 grow with the root of their number.
constexpr double kTolerance = 3e-6;

struct PointwiseCase {
    const char* name;
    PointwiseShape shape;
};
void PrintTo(const PointwiseCase& test, std::ostream* out) { *out << test.name; }

std::vector<PointwiseCase> cases() {
    return {
        {"OnePixel", {.images = 1, .in_blocks = 1, .out_blocks = 1, .height = 1, .width = 1}},
        {"FewPixels", {.images = 1, .in_blocks = 3, .out_blocks = 5, .height = 1, .width = 4}},
        {"SevenBySeven", {.images = 1, .in_blocks = 4, .out_blocks = 8, .height = 7, .width = 7}},
        {"TilesAcrossImages", {.images = 3, .in_blocks = 2, .out_blocks = 3, .height = 7, .width = 7}},
        {"SmallImages", {.images = 3, .in_blocks = 2, .out_blocks = 4, .height = 1, .width = 2}},
        {"SeveralRounds", {.images = 2, .in_blocks = 101, .out_blocks = 3, .height = 5, .width = 3}},
        {"SeveralTiles", {.images = 2, .in_blocks = 2, .out_blocks = 2, .height = 31, .width = 33}},
        {"RoundsAndTiles", {.images = 1, .in_blocks = 49, .out_blocks = 2, .height = 17, .width = 13}},
        {"StrideTwo", {.images = 2, .in_blocks = 3, .out_blocks = 4, .height = 14, .width = 10, .stride = 2}},
        {"StrideTwoOdd", {.images = 3, .in_blocks = 2, .out_blocks = 2, .height = 9, .width = 5, .stride = 2}},
        {"StrideTwoRoundsAndTiles", {.images = 1, .in_blocks = 50, .out_blocks = 2, .height = 25, .width = 26, .stride = 2}},
        {"StrideThree", {.images = 1, .in_blocks = 1, .out_blocks = 1, .height = 8, .width = 7, .stride = 3}},
    };
}

FencedFloats noise(size_t count, const char* name) {
    FencedFloats values(count);
    RandomStream stream(7, name);
    for (size_t place = 0; place < count; ++place) values[place] = stream.normal();
    return values;
}

class Pointwise : public ::testing::TestWithParam<PointwiseCase> {
protected:
    void SetUp() override {
        if (!pointwise_runs_here(shape.block)) GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512";
        source = noise(static_cast<size_t>(shape.images * in() * shape.height * shape.width), "source");
        weights = noise(static_cast<size_t>(in() * out()), "weights");
        scale = noise(static_cast<size_t>(out()), "scale");
        bias = noise(static_cast<size_t>(out()), "bias");
        addend = noise(static_cast<size_t>(shape.images * out() * shape.out_height() * shape.out_width()), "addend");
    }
    void TearDown() override { omp_set_num_threads(1); }

    int64_t in() const { return shape.in_blocks * 8; }
    int64_t out() const { return shape.out_blocks * 8; }
    size_t source_at(int64_t n, int64_t c, int64_t y, int64_t x) const {
        return static_cast<size_t>((((n * in() + c) / 8 * shape.height + y) * shape.width + x) * 8 + c % 8);
    }
    size_t result_at(int64_t n, int64_t c, int64_t y, int64_t x) const {
        return static_cast<size_t>((((n * out() + c) / 8 * shape.out_height() + y) * shape.out_width() + x) * 8 + c % 8);
    }
    size_t weight_at(int64_t o, int64_t i) const {
        return static_cast<size_t>(((o / 8 * shape.in_blocks + i / 8) * 8 + i % 8) * 8 + o % 8);
    }

    // finish(sum, channel, place) for each result of the formula.
    template <typename Finish>
    std::vector<float> expected(const Finish& finish) const {
        std::vector<float> result(addend.size());
        for (int64_t n = 0; n < shape.images; ++n)
            for (int64_t o = 0; o < out(); ++o)
                for (int64_t y = 0; y < shape.out_height(); ++y)
                    for (int64_t x = 0; x < shape.out_width(); ++x) {
                        double sum = 0.0;
                        for (int64_t i = 0; i < in(); ++i) {
                            sum += static_cast<double>(source[source_at(n, i, y * shape.stride, x * shape.stride)]) *
                                   weights[weight_at(o, i)];
                        }
                        const size_t place = result_at(n, o, y, x);
                        result[place] = static_cast<float>(finish(sum, static_cast<size_t>(o), place));
                    }
        return result;
    }

    std::vector<float> forward(PointwiseForward call) const {
        FencedFloats result(addend.size(), 77.0F);
        call.source = source.data();
        call.weights = weights.data();
        call.result = result.data();
        FencedFloats scratch(pointwise_forward_scratch(shape, omp_get_max_threads()), std::numeric_limits<float>::quiet_NaN());
        call.scratch = scratch.data();
        pointwise_forward(shape, call);
        return result.values();
    }

    const PointwiseShape shape = GetParam().shape;
    FencedFloats source, weights, scale, bias, addend;
};

TEST_P(Pointwise, ForwardIsTheConvolution) {
    EXPECT_LE(relative_error(forward({}), expected([](double sum, size_t, size_t) { return sum; })), kTolerance);
}

TEST_P(Pointwise, ForwardFinishesItsSums) {
    const auto biased = [&](double sum, size_t channel, size_t) { return std::max(0.0, sum + bias[channel]); };
    EXPECT_LE(relative_error(forward({.bias = bias.data(), .relu = true}), expected(biased)), kTolerance);
    const auto scaled = [&](double sum, size_t channel, size_t) { return sum * scale[channel] + bias[channel]; };
    EXPECT_LE(relative_error(forward({.scale = scale.data(), .bias = bias.data()}), expected(scaled)), kTolerance);
    const auto all = [&](double sum, size_t channel, size_t place) {
        return std::max(0.0, sum * scale[channel] + bias[channel] + addend[place]);
    };
    EXPECT_LE(
        relative_error(forward({.scale = scale.data(), .bias = bias.data(), .addend = addend.data(), .relu = true}), expected(all)),
        kTolerance);
}

TEST_P(Pointwise, ANaNIsNotHiddenByTheReLU) {
    source[source_at(shape.images - 1, in() - 1, 0, 0)] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(forward({.relu = true})[result_at(shape.images - 1, out() - 1, 0, 0)]));
}

TEST_P(Pointwise, BitsDoNotDependOnThreads) {
    const PointwiseForward call{.scale = scale.data(), .bias = bias.data(), .addend = addend.data(), .relu = true};
    omp_set_num_threads(1);
    const std::vector<float> alone = forward(call);
    for (const int threads : {2, 3, 4}) {
        omp_set_num_threads(threads);
        const std::vector<float> together = forward(call);
        EXPECT_EQ(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)), 0) << threads;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Pointwise, ::testing::ValuesIn(cases()), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lockstep::onednn
