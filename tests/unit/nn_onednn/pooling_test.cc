// Our pooling against plain loops over plain tensors, the vector loops against the plain ones, and the same bits on any number of
// threads.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "core/random.h"
#include "nn/onednn/kernels/pooling.h"

namespace lockstep::onednn {
namespace {

// A tensor as the kernels see it, its values readable as floats. Values are small multiples of 1/8: exact in bf16, and ties happen.
struct Stored {
    DataType type;
    std::vector<float> wide;
    std::vector<uint16_t> narrow;

    Stored(DataType stored_type, size_t count) : type(stored_type), wide(count), narrow(count) {}
    static Stored random(DataType type, size_t count, uint64_t key) {
        Stored stored(type, count);
        RandomStream stream(key, "pooling");
        for (size_t i = 0; i < count; ++i) stored.put(i, static_cast<float>(stream.below(65)) / 8.0F - 4.0F);
        return stored;
    }
    void put(size_t i, float value) {
        uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        wide[i] = value;
        narrow[i] = static_cast<uint16_t>(bits >> 16);
    }
    float get(size_t i) const {
        if (type == DataType::f32) return wide[i];
        const uint32_t bits = static_cast<uint32_t>(narrow[i]) << 16;
        float value = 0.0F;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    void* data() { return type == DataType::f32 ? static_cast<void*>(wide.data()) : narrow.data(); }
};

PoolAxis axis(int64_t input, int64_t kernel, int64_t stride, int64_t pad, bool ceil_mode) {
    int64_t output = (input + 2 * pad - kernel) / stride + 1;
    if (ceil_mode && (input + 2 * pad - kernel) % stride != 0 && output * stride < input + pad) ++output;
    return {.input = input, .output = output, .kernel = kernel, .stride = stride, .pad = pad};
}

// The same by the definition, pixel by pixel. Works on one channel of one plane.
class Twin {
public:
    explicit Twin(const PoolShape& shape) : shape_(shape) {}

    template <typename Work>  // work(output pixel, input pixel, divisor)
    void for_each_pair(const Work& work) const {
        const PoolAxis &rows = shape_.rows, &columns = shape_.columns;
        for (int64_t out_row = 0; out_row < rows.output; ++out_row) {
            for (int64_t out_column = 0; out_column < columns.output; ++out_column) {
                const int64_t top = out_row * rows.stride - rows.pad, left = out_column * columns.stride - columns.pad;
                const int64_t divisor = divisor_of(rows, top) * divisor_of(columns, left);
                for (int64_t row = std::max<int64_t>(top, 0); row < std::min(top + rows.kernel, rows.input); ++row) {
                    for (int64_t column = std::max<int64_t>(left, 0); column < std::min(left + columns.kernel, columns.input);
                         ++column) {
                        work(out_row * columns.output + out_column, row * columns.input + column, static_cast<float>(divisor));
                    }
                }
            }
        }
    }

    // By output pixel: the input pixel taken.
    std::vector<int64_t> winners(const Stored& input, int64_t plane, int64_t channel) const {
        std::vector<int64_t> taken(static_cast<size_t>(shape_.rows.output * shape_.columns.output), -1);
        for_each_pair([&](int64_t out, int64_t in, float) {
            int64_t& best = taken[static_cast<size_t>(out)];
            const float value = input.get(input_place(plane, in, channel));
            if (best < 0 || value > input.get(input_place(plane, best, channel)) || std::isnan(value)) best = in;
        });
        return taken;
    }

    size_t input_place(int64_t plane, int64_t pixel, int64_t channel) const {
        return static_cast<size_t>((plane * shape_.rows.input * shape_.columns.input + pixel) * shape_.block + channel);
    }
    size_t output_place(int64_t plane, int64_t pixel, int64_t channel) const {
        return static_cast<size_t>((plane * shape_.rows.output * shape_.columns.output + pixel) * shape_.block + channel);
    }

private:
    int64_t divisor_of(const PoolAxis& axis, int64_t first) const {
        if (shape_.count_padding) return std::min(first + axis.kernel, axis.input + axis.pad) - first;
        return std::min(first + axis.kernel, axis.input) - std::max<int64_t>(first, 0);
    }
    PoolShape shape_;
};

struct Case {
    PoolAxis rows, columns;
    bool count_padding = false;
};

std::vector<Case> cases() {
    return {
        {axis(7, 3, 2, 0, true), axis(9, 3, 2, 0, true)},    // Caffe's
        {axis(8, 3, 2, 0, true), axis(8, 3, 2, 0, true)},    // the last window hangs over
        {axis(9, 3, 2, 1, false), axis(6, 3, 2, 1, false)},  // ResNet's
        {axis(6, 2, 2, 0, false), axis(4, 2, 2, 0, false)}, {axis(5, 3, 1, 1, false), axis(5, 3, 1, 1, false)},  // GoogLeNet's
        {axis(5, 1, 2, 0, false), axis(7, 2, 3, 1, true)},   // pixels that no window takes
        {axis(5, 5, 1, 0, false), axis(3, 3, 1, 0, false)},  // the whole map
        {axis(1, 1, 1, 0, false), axis(1, 1, 1, 0, false)}, {axis(8, 3, 2, 1, true), axis(7, 3, 2, 1, true), true},
    };
}

class PoolingKernel : public ::testing::TestWithParam<std::tuple<int64_t, DataType, int>> {
protected:
    ~PoolingKernel() override { omp_set_num_threads(1); }

    template <typename Body>  // body(shape, pooling, twin)
    void for_each_case(const Body& body) {
        const auto [block, type, threads] = GetParam();
        omp_set_num_threads(threads);
        for (const Case& c : cases()) {
            SCOPED_TRACE(::testing::Message() << c.rows.input << "x" << c.columns.input << " kernel " << c.rows.kernel);
            // 97 planes: enough elements for several threads, and no whole number of planes for each.
            const PoolShape shape{
                .planes = 97, .block = block, .type = type, .rows = c.rows, .columns = c.columns, .count_padding = c.count_padding};
            body(shape, Pooling(shape), Twin(shape));
        }
    }
    // The divisor's reciprocal and one rounding in bf16.
    double tolerance() const { return std::get<1>(GetParam()) == DataType::f32 ? 1e-6 : 1.0 / 128.0; }
};

size_t input_count(const PoolShape& shape) {
    return static_cast<size_t>(shape.planes * shape.rows.input * shape.columns.input * shape.block);
}

TEST_P(PoolingKernel, MaxTakesTheFirstLargestAndGivesItsGradientBack) {
    for_each_case([&](const PoolShape& shape, const Pooling& pooling, const Twin& twin) {
        Stored input = Stored::random(shape.type, input_count(shape), 1), back(shape.type, input_count(shape));
        const auto out_count = static_cast<size_t>(shape.output_count());
        Stored result(shape.type, out_count), unnoted(shape.type, out_count), gradient = Stored::random(shape.type, out_count, 2);
        std::vector<uint8_t> winners(out_count);
        pooling.max_forward(input.data(), result.data(), winners.data());
        pooling.max_forward(input.data(), unnoted.data(), nullptr);
        pooling.max_backward(gradient.data(), winners.data(), back.data());
        for (int64_t plane = 0; plane < shape.planes; ++plane) {
            for (int64_t channel = 0; channel < shape.block; ++channel) {
                const std::vector<int64_t> taken = twin.winners(input, plane, channel);
                std::vector<float> expected(static_cast<size_t>(shape.rows.input * shape.columns.input));
                for (size_t out = 0; out < taken.size(); ++out) {
                    const size_t place = twin.output_place(plane, static_cast<int64_t>(out), channel);
                    ASSERT_EQ(result.get(place), input.get(twin.input_place(plane, taken[out], channel)));
                    ASSERT_EQ(unnoted.get(place), result.get(place));
                    expected[static_cast<size_t>(taken[out])] += gradient.get(place);
                }
                for (size_t in = 0; in < expected.size(); ++in) {  // sums of eighths are exact
                    ASSERT_EQ(back.get(twin.input_place(plane, static_cast<int64_t>(in), channel)), expected[in]);
                }
            }
        }
    });
}

TEST_P(PoolingKernel, AverageDividesByTheWindowsPart) {
    for_each_case([&](const PoolShape& shape, const Pooling& pooling, const Twin& twin) {
        Stored input = Stored::random(shape.type, input_count(shape), 3), back(shape.type, input_count(shape));
        const auto out_count = static_cast<size_t>(shape.output_count());
        Stored result(shape.type, out_count), gradient = Stored::random(shape.type, out_count, 4);
        pooling.average_forward(input.data(), result.data());
        pooling.average_backward(gradient.data(), back.data());
        for (int64_t plane = 0; plane < shape.planes; ++plane) {
            for (int64_t channel = 0; channel < shape.block; ++channel) {
                std::vector<double> averages(out_count / static_cast<size_t>(shape.planes * shape.block));
                std::vector<double> shares(static_cast<size_t>(shape.rows.input * shape.columns.input));
                twin.for_each_pair([&](int64_t out, int64_t in, float divisor) {
                    averages[static_cast<size_t>(out)] += input.get(twin.input_place(plane, in, channel)) / divisor;
                    shares[static_cast<size_t>(in)] += gradient.get(twin.output_place(plane, out, channel)) / divisor;
                });
                for (size_t out = 0; out < averages.size(); ++out) {
                    ASSERT_NEAR(result.get(twin.output_place(plane, static_cast<int64_t>(out), channel)), averages[out],
                                tolerance() * (1.0 + std::abs(averages[out])));
                }
                for (size_t in = 0; in < shares.size(); ++in) {
                    ASSERT_NEAR(back.get(twin.input_place(plane, static_cast<int64_t>(in), channel)), shares[in],
                                tolerance() * (1.0 + std::abs(shares[in])));
                }
            }
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Forms, PoolingKernel,
                         ::testing::Combine(::testing::Values(8, 16), ::testing::Values(DataType::f32, DataType::bf16),
                                            ::testing::Values(1, 3)));

TEST(PoolingNan, WinsOverAllNumbersAndLessThanNothingIsANumber) {
    const PoolShape shape{.planes = 1, .rows = axis(1, 1, 1, 0, false), .columns = axis(4, 2, 2, 0, false)};
    std::vector<float> input(4 * 8), result(2 * 8), back(4 * 8), gradient(2 * 8, 1.0F);
    std::vector<uint8_t> winners(2 * 8);
    std::fill_n(input.begin(), 8, NAN);
    std::fill_n(input.begin() + 8, 8, 5.0F);
    std::fill_n(input.begin() + 16, 16, -std::numeric_limits<float>::infinity());
    const Pooling pooling(shape);
    pooling.max_forward(input.data(), result.data(), winners.data());
    pooling.max_backward(gradient.data(), winners.data(), back.data());
    for (size_t lane = 0; lane < 8; ++lane) {
        EXPECT_TRUE(std::isnan(result[lane]));
        EXPECT_EQ(result[8 + lane], -std::numeric_limits<float>::infinity());
        EXPECT_EQ(back[lane], 1.0F);
        EXPECT_EQ(back[16 + lane], 1.0F);  // the first of two equals
        EXPECT_EQ(back[8 + lane] + back[24 + lane], 0.0F);
    }
}

// In the middle of a map too, where windows are whole; infinities of both signs in one window are no NaN.
TEST(PoolingNan, AndInfinitiesAreTakenAsTheDefinitionSays) {
    const PoolShape shape{.planes = 1, .rows = axis(13, 3, 2, 1, false), .columns = axis(15, 3, 2, 1, false)};
    const Twin twin(shape);
    Stored input = Stored::random(DataType::f32, static_cast<size_t>(13 * 15 * 8), 7);
    RandomStream random(8, "pooling");
    for (size_t i = 0; i < input.wide.size(); ++i) {
        const uint64_t kind = random.below(20);
        if (kind == 0) input.put(i, NAN);
        if (kind == 1 || kind == 2) input.put(i, kind == 1 ? INFINITY : -INFINITY);
    }
    Stored result(DataType::f32, static_cast<size_t>(shape.output_count()));
    std::vector<uint8_t> winners(static_cast<size_t>(shape.output_count()));
    const Pooling pooling(shape);
    pooling.max_forward(input.data(), result.data(), winners.data());
    Stored ones(DataType::f32, result.wide.size()), back(DataType::f32, input.wide.size());
    std::fill(ones.wide.begin(), ones.wide.end(), 1.0F);
    pooling.max_backward(ones.data(), winners.data(), back.data());
    for (int64_t channel = 0; channel < 8; ++channel) {
        const std::vector<int64_t> taken = twin.winners(input, 0, channel);
        std::vector<float> expected(13 * 15);
        for (size_t out = 0; out < taken.size(); ++out) {
            const float value = input.get(twin.input_place(0, taken[out], channel));
            const float actual = result.get(twin.output_place(0, static_cast<int64_t>(out), channel));
            ASSERT_TRUE(actual == value || (std::isnan(actual) && std::isnan(value))) << actual << " instead of " << value;
            expected[static_cast<size_t>(taken[out])] += 1.0F;
        }
        for (size_t in = 0; in < expected.size(); ++in) {
            ASSERT_EQ(back.get(twin.input_place(0, static_cast<int64_t>(in), channel)), expected[in]);
        }
    }
}

// The loops that this processor would not run.
TEST(PoolingLines, PlainOnesSayTheSame) {
    constexpr int64_t kBlock = 16, kHeight = 5, kWidth = 7;
    const std::vector<pool_lines::Span> columns{{0, 2}, {1, 4}, {3, 6}, {5, 7}};
    const std::vector<float> row_quotients{0.5F, 0.25F, 0.125F, 1.0F, 2.0F},
        column_quotients{1.0F, 0.5F, 2.0F, 1.0F, 0.25F, 3.0F, 0.75F};
    Stored source = Stored::random(DataType::f32, kBlock * kHeight * kWidth, 5);
    RandomStream random(6, "winners");
    std::vector<uint8_t> source_winners(kBlock * kHeight * kWidth);
    for (uint8_t& winner : source_winners) winner = static_cast<uint8_t>(random.below(9));
    const auto outcome = [&](void (*work)(const pool_lines::Line&), bool note) {
        std::vector<float> result(kBlock * 4, -7.0F);
        std::vector<uint8_t> winners(kBlock * 4, 99);
        work({.block = kBlock,
              .source = source.data(),
              .source_width = kWidth,
              .rows = {1, 4},
              .columns = columns.data(),
              .result = result.data(),
              .width = 4,
              .winners = note ? winners.data() : nullptr,
              .source_winners = source_winners.data(),
              .place = 1,
              .place_per_row = 3,
              .place_per_column = 1,
              .place_per_pixel = -2,
              .row_quotients = row_quotients.data(),
              .column_quotients = column_quotients.data()});
        result.insert(result.end(), winners.begin(), winners.end());
        return result;
    };
    EXPECT_EQ(outcome(pool_lines::max_forward, true), outcome(pool_lines::plain::max_forward, true));
    EXPECT_EQ(outcome(pool_lines::max_forward, false), outcome(pool_lines::plain::max_forward, false));
    EXPECT_EQ(outcome(pool_lines::max_backward, false), outcome(pool_lines::plain::max_backward, false));
    EXPECT_EQ(outcome(pool_lines::average_forward, false), outcome(pool_lines::plain::average_forward, false));
    EXPECT_EQ(outcome(pool_lines::average_backward, false), outcome(pool_lines::plain::average_backward, false));
}

}  // namespace
}  // namespace lockstep::onednn
