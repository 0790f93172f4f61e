#include "collectives/kernels/reduce_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/random.h"

namespace lockstep {
namespace {

// Data of one type for every rank, misaligned, with infinities, denormals and large and small magnitudes.
class Inputs {
public:
    Inputs(DataType type, size_t rank_count, size_t count, size_t misalignment)
        : skipped_bytes_(misalignment * bytes_per_element(type)) {
        for (size_t rank = 0; rank < rank_count; ++rank) {
            RandomStream stream(1, "kernels-test", rank, count);
            std::vector<std::byte> bytes((count + misalignment) * bytes_per_element(type));
            for (size_t index = 0; index < count + misalignment; ++index) put(type, bytes, index, stream);
            values_.push_back(std::move(bytes));
        }
    }
    std::vector<void*> pointers() {
        std::vector<void*> result;
        for (auto& bytes : values_) result.push_back(bytes.data() + skipped_bytes_);
        return result;
    }
    std::vector<const void*> inputs() {
        const auto all = pointers();
        return {all.begin(), all.end()};
    }
    bool operator==(const Inputs& other) const { return values_ == other.values_; }

private:
    static void put(DataType type, std::vector<std::byte>& bytes, size_t index, RandomStream& stream) {
        if (type == DataType::f32) {
            float value = stream.normal() * (stream.next_u32() % 5 == 0 ? 1e30F : 1.0F);
            if (stream.next_u32() % 97 == 0) value = 1e-41F;
            if (stream.next_u32() % 97 == 0) value = std::numeric_limits<float>::infinity();
            std::memcpy(bytes.data() + 4 * index, &value, sizeof value);
        } else {
            auto half = static_cast<uint16_t>(stream.next_u32());  // any bits; only positive infinity and no other NaN
            const uint16_t exponent = type == DataType::bf16 ? 0x7f80 : 0x7c00;
            if ((half & exponent) == exponent) half = exponent;
            std::memcpy(bytes.data() + 2 * index, &half, sizeof half);
        }
    }

    size_t skipped_bytes_;
    std::vector<std::vector<std::byte>> values_;
};

constexpr size_t kCounts[] = {0, 1, 2, 7, 15, 16, 17, 31, 33, 63, 64, 65, 255, 2047, 1003};
constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::f16};

// Every test runs with every instruction set that this processor has.
class ReduceKernels : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override { reduce_kernels::use_instruction_set(GetParam()); }
    void TearDown() override { reduce_kernels::use_instruction_set(""); }
};

TEST_P(ReduceKernels, SumEqualsThePlainLoopsBitForBit) {
    for (const DataType type : kTypes) {
        for (const size_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 23, 40}) {
            for (const size_t count : kCounts) {
                Inputs inputs(type, ranks, count, count % 3);
                for (const float scale : {1.0F, 0.125F, 1.0F / 3.0F}) {
                    std::vector<float> fast(count + 1, 5.0F);
                    std::vector<float> plain(count + 1, 5.0F);
                    void* const fast_output[] = {fast.data()};
                    void* const plain_output[] = {plain.data()};
                    reduce_kernels::sum(type, fast_output, inputs.inputs(), count, scale);
                    reduce_kernels::reference::sum(type, plain_output, inputs.inputs(), count, scale);
                    ASSERT_EQ(std::memcmp(fast.data(), plain.data(), fast.size() * sizeof(float)), 0)
                        << to_string(type) << ", " << ranks << " ranks, " << count << " elements, scale " << scale;
                }
            }
        }
    }
}

TEST_P(ReduceKernels, SumMayOverwriteAnyNumberOfItsInputs) {
    for (const DataType type : kTypes) {
        for (size_t ranks = 1; ranks <= 10; ++ranks) {
            for (size_t outputs = 1; outputs <= ranks; ++outputs) {
                Inputs fast(type, ranks, 203, 1);
                Inputs plain(type, ranks, 203, 1);
                // The last ones, so that an output is not always the first input.
                const std::vector<void*> fast_outputs = fast.pointers();
                const std::vector<void*> plain_outputs = plain.pointers();
                reduce_kernels::sum(type, std::span(fast_outputs).last(outputs), fast.inputs(), 203);
                reduce_kernels::reference::sum(type, std::span(plain_outputs).last(outputs), plain.inputs(), 203);
                ASSERT_TRUE(fast == plain) << to_string(type) << ", " << ranks << " ranks, " << outputs << " outputs";
            }
        }
    }
}

TEST_P(ReduceKernels, FloatsInAFlatListGiveTheSameSum) {
    Inputs inputs(DataType::f32, 5, 77, 0);
    const std::vector<const void*> all = inputs.inputs();
    std::vector<const float*> floats;
    for (const void* input : all) floats.push_back(static_cast<const float*>(input));
    std::vector<float> fast(77);
    std::vector<float> plain(77);
    void* const plain_output[] = {plain.data()};
    reduce_kernels::sum(fast.data(), floats.data(), 5, 77);
    reduce_kernels::reference::sum(DataType::f32, plain_output, all, 77);
    EXPECT_EQ(std::memcmp(fast.data(), plain.data(), 77 * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, ReduceKernels, testing::ValuesIn(reduce_kernels::instruction_sets()),
                         [](const auto& each) { return each.param; });

float one_sum(std::vector<float> values) {
    std::vector<const void*> inputs;
    for (const float& value : values) inputs.push_back(&value);
    float result = 0.0F;
    void* const output[] = {&result};
    reduce_kernels::reference::sum(DataType::f32, output, inputs, 1);
    return result;
}

TEST(ReduceReference, AddsAlongTheTreeWithTheLargestPowerOfTwoOnTheLeft) {
    const float tiny = 0x1p-24F;                   // half a unit in the last place of 1: lost when added to 1 alone
    EXPECT_EQ(one_sum({1.0F, tiny, tiny}), 1.0F);  // (1 + t) + t
    EXPECT_EQ(one_sum({1.0F, tiny, tiny, tiny}), 1.0F + 2 * tiny);  // (1 + t) + (t + t)
    EXPECT_EQ(one_sum({tiny, tiny, 1.0F}), 1.0F + 2 * tiny);
    EXPECT_EQ(one_sum({1.0F, 0.0F, 0.0F, tiny, tiny, 0.0F}), 1.0F);             // ((1 + 0) + (0 + t)) + (t + 0)
    EXPECT_EQ(one_sum({1.0F, 0.0F, 0.0F, 0.0F, tiny, tiny}), 1.0F + 2 * tiny);  // ((1 + 0) + (0 + 0)) + (t + t)
}

float through_half(DataType type, uint16_t half) {  // the value of a half float, by its definition
    const int exponent_bits = type == DataType::bf16 ? 8 : 5;
    const int fraction_bits = 15 - exponent_bits;
    const int exponent = half >> fraction_bits & ((1 << exponent_bits) - 1);
    const int fraction = half & ((1 << fraction_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                           : std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
    return static_cast<float>((half & 0x8000) != 0 ? -magnitude : magnitude);
}

// Every finite half float, and what lies between it and its neighbour, rounds as IEEE 754 says.
TEST(ReduceReference, RoundsHalfFloatsToNearestEven) {
    for (const DataType type : {DataType::bf16, DataType::f16}) {
        const uint16_t infinity = type == DataType::bf16 ? 0x7f80 : 0x7c00;
        for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
            const auto half = static_cast<uint16_t>(bits);
            const auto next = static_cast<uint16_t>(bits + 1);
            const double low = through_half(type, half);
            const double high = through_half(type, next);
            // A sum of two halves in fp32 (exact here) that lies on, just below and on the middle.
            const auto rounded = [&](float value) {
                const uint16_t zero = 0;
                uint16_t result = 0;
                void* const output[] = {&result};
                const void* const inputs[] = {&half, &zero};
                reduce_kernels::reference::sum(type, output, inputs, 1, static_cast<float>(value / low));
                return result;
            };
            uint16_t itself = 0;
            void* const output[] = {&itself};
            const void* const inputs[] = {&half};
            reduce_kernels::reference::sum(type, output, inputs, 1);
            ASSERT_EQ(itself, half);
            if (bits == 0 || bits % 7 != 0) continue;  // the middle needs an exact factor: only where there is one
            const float middle = static_cast<float>((low + high) / 2);
            if (static_cast<float>(low) * static_cast<float>(middle / low) != middle) continue;
            ASSERT_EQ(rounded(middle), bits % 2 == 0 ? half : next) << to_string(type) << " " << bits;
        }
    }
}

TEST(ReduceReference, HalfFloatsOverflowToInfinityAndKeepNaN) {
    for (const DataType type : {DataType::bf16, DataType::f16}) {
        const uint16_t infinity = type == DataType::bf16 ? 0x7f80 : 0x7c00;
        const auto largest = static_cast<uint16_t>(infinity - 1);
        const auto nan = static_cast<uint16_t>(infinity + 1);
        for (const auto& [left, right, is_infinite] : std::vector<std::tuple<uint16_t, uint16_t, bool>>{
                 {largest, largest, true}, {infinity, largest, true}, {nan, largest, false}}) {
            uint16_t result = 0;
            void* const output[] = {&result};
            const void* const inputs[] = {&left, &right};
            reduce_kernels::sum(type, output, inputs, 1);
            EXPECT_EQ(result & infinity, infinity);
            EXPECT_EQ((result & ~infinity & 0x7fff) == 0, is_infinite);
        }
    }
}

}  // namespace
}  // namespace lockstep
