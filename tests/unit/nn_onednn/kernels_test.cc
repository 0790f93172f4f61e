// The element-wise and loss kernels against loops that say the same in one line.
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "core/random.h"
#include "nn/onednn/kernels/elementwise.h"
#include "nn/onednn/kernels/loss.h"
#include "nn/onednn/kernels/pad_shortcut.h"
#include "nn/onednn/kernels/sigmoid.h"

namespace lockstep::onednn {
namespace {

std::vector<float> random_values(size_t count, uint64_t key) {
    RandomStream random(key, "kernels");
    std::vector<float> values(count);
    for (float& value : values) value = random.normal();
    return values;
}

Operand f32(std::vector<float>& values) { return {values.data(), DataType::f32}; }

uint16_t bf16_bits(float value) {  // values in the tests are exact in bf16
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>(bits >> 16);
}
float bf16_value(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value = 0.0F;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

class Elementwise : public ::testing::TestWithParam<size_t> {};

TEST_P(Elementwise, AgreesWithTheOneLineLoop) {
    const size_t count = GetParam();
    std::vector<float> a = random_values(count, 1), b = random_values(count, 2), y = random_values(count, 3);
    std::vector<float> sum(count), sum_relu(count), masked(count), masked_sum(count), product(count);
    const auto n = static_cast<int64_t>(count);
    add(f32(sum), f32(a), f32(b), n);
    add_relu(f32(sum_relu), f32(a), f32(b), n);
    relu_backward(f32(masked), f32(y), f32(a), n);
    relu_backward(f32(masked_sum), f32(y), f32(a), f32(b), n);
    multiply(f32(product), f32(a), b.data(), n);
    for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(sum[i], a[i] + b[i]);
        ASSERT_EQ(sum_relu[i], std::max(a[i] + b[i], 0.0F));
        ASSERT_EQ(masked[i], y[i] > 0.0F ? a[i] : 0.0F);
        ASSERT_EQ(masked_sum[i], y[i] > 0.0F ? a[i] + b[i] : 0.0F);
        ASSERT_EQ(product[i], a[i] * b[i]);
    }
}

TEST_P(Elementwise, MayWriteOverItsInput) {
    const size_t count = GetParam();
    std::vector<float> a = random_values(count, 1), b = random_values(count, 2), expected(count);
    add_relu(f32(expected), f32(a), f32(b), static_cast<int64_t>(count));
    add_relu(f32(a), f32(a), f32(b), static_cast<int64_t>(count));
    EXPECT_EQ(a, expected);
}

// Its relative error: some rounding and a polynomial's 1e-7, and what rounding x to a power of two adds.
TEST_P(Elementwise, SigmoidIsNearThePlainOne) {
    const size_t count = GetParam();
    std::vector<float> a = random_values(count, 4), fast(count), slow(count);
    for (float& x : a) x *= 20.0F;
    sigmoid(f32(fast), f32(a), static_cast<int64_t>(count));
    plain::sigmoid(f32(slow), f32(a), 0, static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) {
        const float error = 4e-7F + std::abs(a[i]) * std::ldexp(1.0F, -23);
        ASSERT_NEAR(fast[i], slow[i], error * slow[i] + 1.3e-38F) << "of " << a[i];
    }
    sigmoid(f32(a), f32(a), static_cast<int64_t>(count));
    EXPECT_EQ(a, fast);
}

INSTANTIATE_TEST_SUITE_P(Counts, Elementwise, ::testing::Values(0, 1, 7, 64, 1000, 16384 * 3 + 5));

TEST(ElementwiseBf16, RoundsToNearestEvenAndKeepsNan) {
    const float tie_down = 1.0F + 1.0F / 256.0F, tie_up = 1.0F + 3.0F / 256.0F;  // halfway between two bf16 values
    std::vector<uint16_t> a{bf16_bits(1.0F), bf16_bits(1.0F), bf16_bits(NAN), bf16_bits(-2.0F)};
    std::vector<uint16_t> b{bf16_bits(tie_down - 1.0F), bf16_bits(tie_up - 1.0F), bf16_bits(1.0F), bf16_bits(1.0F)};
    std::vector<uint16_t> out(4);
    add_relu({out.data(), DataType::bf16}, {a.data(), DataType::bf16}, {b.data(), DataType::bf16}, 4);
    EXPECT_EQ(bf16_value(out[0]), 1.0F);
    EXPECT_EQ(bf16_value(out[1]), 1.0F + 4.0F / 256.0F);
    EXPECT_TRUE(std::isnan(bf16_value(out[2])));
    EXPECT_EQ(bf16_value(out[3]), 0.0F);
}

TEST(ElementwiseBf16, BackwardOfReluKeepsOrDropsWholeValues) {
    std::vector<uint16_t> y{bf16_bits(1.0F), bf16_bits(0.0F), bf16_bits(0.5F)};
    std::vector<uint16_t> a{bf16_bits(3.0F), bf16_bits(4.0F), bf16_bits(-1.0F)},
        b{bf16_bits(0.5F), bf16_bits(1.0F), bf16_bits(2.0F)};
    std::vector<uint16_t> out(3);
    relu_backward({out.data(), DataType::bf16}, {y.data(), DataType::bf16}, {a.data(), DataType::bf16}, {b.data(), DataType::bf16},
                  3);
    EXPECT_EQ(bf16_value(out[0]), 3.5F);
    EXPECT_EQ(bf16_value(out[1]), 0.0F);
    EXPECT_EQ(bf16_value(out[2]), 1.0F);
}

TEST(Sigmoid, SaturatesAndKeepsNan) {
    for (size_t place = 0; place < 17; ++place) {
        std::vector<float> a(17, 1e30F), out(17);
        a[place] = std::bit_cast<float>(0x7FC00001U);  // a NaN with something in its low bits
        a[(place + 1) % 17] = -INFINITY;
        sigmoid(f32(out), f32(a), 17);
        for (size_t i = 0; i < 17; ++i) {
            if (i == place) {
                ASSERT_TRUE(std::isnan(out[i]));
            } else {
                ASSERT_NEAR(out[i], i == (place + 1) % 17 ? 0.0F : 1.0F, 1e-6F);
            }
        }
    }
}

TEST(Sigmoid, InBf16IsTheRoundedPlainOne) {
    std::vector<uint16_t> a(1000), fast(1000), slow(1000);
    RandomStream random(7, "kernels");
    for (uint16_t& bits : a) bits = bf16_bits(4.0F * random.normal());
    sigmoid({fast.data(), DataType::bf16}, {a.data(), DataType::bf16}, 1000);
    plain::sigmoid({slow.data(), DataType::bf16}, {a.data(), DataType::bf16}, 0, 1000);
    for (size_t i = 0; i < a.size(); ++i) ASSERT_LE(std::abs(fast[i] - slow[i]), 1) << bf16_value(a[i]);  // a tie may fall apart
}

TEST(ElementwiseNan, ReluOfASumDoesNotHideNan) {
    std::vector<float> a{NAN}, b{1.0F}, out{0.0F};
    add_relu(f32(out), f32(a), f32(b), 1);
    EXPECT_TRUE(std::isnan(out[0]));
}

TEST(ScaleInto, WritesOrAdds) {
    std::vector<float> out{10.0F, 20.0F}, in{1.0F, 2.0F};
    scale_into(out.data(), in.data(), 3.0F, true, 2);
    EXPECT_EQ(out, (std::vector<float>{13.0F, 26.0F}));
    scale_into(out.data(), in.data(), 3.0F, false, 2);
    EXPECT_EQ(out, (std::vector<float>{3.0F, 6.0F}));
}

TEST(SoftmaxLoss, IsFiniteForHugeLogitsAndZeroForEmptySlots) {
    const std::vector<float> logits{1e4F, -1e4F, 0.0F, 1.0F, 2.0F, 3.0F};
    const std::vector<int32_t> labels{0, -1};
    std::vector<float> losses(2), gradients(6);
    softmax_losses(logits, {.labels = labels}, losses);
    softmax_gradients(logits, {.labels = labels}, 1.0F, gradients.data());
    EXPECT_FLOAT_EQ(losses[0], 0.0F);
    EXPECT_EQ(losses[1], 0.0F);
    for (const float gradient : gradients) EXPECT_NEAR(gradient, 0.0F, 1e-6F);
}

TEST(SoftmaxLoss, GradientsOfARowSumToZeroUnderSmoothing) {
    const std::vector<float> logits{0.1F, -0.5F, 2.0F};
    std::vector<float> gradients(3);
    const std::vector<int32_t> labels{2};
    softmax_gradients(logits, {.labels = labels, .smoothing = 0.1F}, 1.0F, gradients.data());
    EXPECT_NEAR(gradients[0] + gradients[1] + gradients[2], 0.0F, 1e-6F);
}

TEST(SoftmaxLoss, OfAMixtureIsTheMixtureOfTheLosses) {
    const std::vector<float> logits{0.1F, -0.5F, 2.0F, 1.0F};
    const std::vector<int32_t> first{2}, second{3};
    for (const float smoothing : {0.0F, 0.1F}) {
        std::vector<float> losses(3), gradients(12);
        const std::span<float> all(losses), slopes(gradients);
        const LossTargets targets[] = {
            {.labels = first, .smoothing = smoothing},
            {.labels = second, .smoothing = smoothing},
            {.labels = first, .second_labels = second, .second_share = 0.3F, .smoothing = smoothing},
        };
        for (size_t index = 0; index < 3; ++index) {
            softmax_losses(logits, targets[index], all.subspan(index, 1));
            softmax_gradients(logits, targets[index], 0.5F, slopes.subspan(4 * index, 4).data());
        }
        EXPECT_NEAR(losses[2], 0.7F * losses[0] + 0.3F * losses[1], 1e-6F);
        for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(gradients[8 + k], 0.7F * gradients[k] + 0.3F * gradients[4 + k], 1e-6F);
    }
}

// Channels in blocks of `block` over an h x w map.
ChannelBlocks blocks_of(int64_t channels, int64_t block, int64_t height, int64_t width) {
    const int64_t count = (channels + block - 1) / block;
    return {.channels = channels,
            .height = height,
            .width = width,
            .block = block,
            .block_count = count,
            .image_stride = count * block * height * width,
            .block_stride = block * height * width,
            .row_stride = block * width,
            .pixel_stride = block};
}

size_t place(const ChannelBlocks& shape, int64_t image, int64_t channel, int64_t row, int64_t column) {
    return static_cast<size_t>(image * shape.image_stride + channel / shape.block * shape.block_stride + row * shape.row_stride +
                               column * shape.pixel_stride + channel % shape.block);
}

class PadShortcutKernel : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t>> {};

TEST_P(PadShortcutKernel, TakesEveryStridePixelAndZeroesTheRest) {
    const auto [block, channels, out_channels] = GetParam();
    PadShortcut shape{.batch = 2, .stride = 2, .channels_before = (out_channels - channels) / 2};
    shape.small = blocks_of(channels, block, 5, 4);
    shape.large = blocks_of(out_channels, block, 3, 2);
    std::vector<float> input = random_values(static_cast<size_t>(2 * shape.small.image_stride), 5);
    std::vector<float> output(static_cast<size_t>(2 * shape.large.image_stride), NAN);
    pad_shortcut_forward(shape, input.data(), output.data());
    double expected_sum = 0.0, sum = 0.0;
    for (const float value : output) sum += value;  // padding lanes must be zero too
    for (int64_t image = 0; image < 2; ++image) {
        for (int64_t channel = 0; channel < channels; ++channel) {
            for (int64_t row = 0; row < 3; ++row) {
                for (int64_t column = 0; column < 2; ++column) {
                    const float in = input[place(shape.small, image, channel, row * 2, column * 2)];
                    ASSERT_EQ(output[place(shape.large, image, channel + shape.channels_before, row, column)], in);
                    expected_sum += in;
                }
            }
        }
    }
    EXPECT_NEAR(sum, expected_sum, 1e-3);

    // Backward is the transpose: <forward(x), g> == <x, backward(g)>.
    std::vector<float> gradient = random_values(output.size(), 6), back(input.size(), NAN);
    pad_shortcut_backward(shape, gradient.data(), back.data());
    double left = 0.0, right = 0.0;
    for (size_t i = 0; i < output.size(); ++i) left += static_cast<double>(output[i]) * gradient[i];
    for (size_t i = 0; i < input.size(); ++i) right += static_cast<double>(input[i]) * back[i];
    EXPECT_NEAR(left, right, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PadShortcutKernel,
                         ::testing::Values(std::tuple{1, 3, 6}, std::tuple{8, 16, 32}, std::tuple{8, 16, 24}, std::tuple{8, 5, 17},
                                           std::tuple{16, 16, 48}, std::tuple{16, 32, 64}));

}  // namespace
}  // namespace lockstep::onednn
