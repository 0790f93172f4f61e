#include "collectives/kernels/wire_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/random.h"

namespace lockstep {
namespace {

std::vector<float> mixed_values(size_t count) {
    std::vector<float> values(count);
    RandomStream stream(5, "wire-test", count);
    for (float& value : values) {
        const uint32_t kind = stream.next_u32() % 8;
        value = stream.normal();
        if (kind == 0) value *= 1e-7F;                                                              // denormal in f16
        if (kind == 1) value *= 1e5F;                                                               // too large for f16
        if (kind == 2) value = std::bit_cast<float>(stream.next_u32() >> 9);                        // denormal in f32
        if (kind == 3) value = std::bit_cast<float>(0x3F808000U + (stream.next_u32() & 0x10000U));  // ties of bf16
        if (kind == 4) value = std::bit_cast<float>(0x3F801000U + (stream.next_u32() & 0x2000U));   // ties of f16
    }
    const float special[] = {0.0F,
                             -0.0F,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::max(),
                             std::numeric_limits<float>::quiet_NaN()};
    for (size_t index = 0; index < std::size(special) && 7 * index + 3 < count; ++index) values[7 * index + 3] = special[index];
    return values;
}

bool same_bytes(const void* left, const void* right, size_t bytes) { return bytes == 0 || std::memcmp(left, right, bytes) == 0; }

class WireKernels : public testing::TestWithParam<DataType> {};

TEST_P(WireKernels, AgreeWithThePlainLoopsBitForBit) {
    for (const size_t count : {0, 1, 3, 7, 8, 9, 31, 64, 1000, 4099}) {
        for (const size_t misalignment : {0, 1}) {
            std::vector<float> values = mixed_values(count);
            std::vector<float> expected = values;
            std::vector<std::byte> wire(2 * count + misalignment);
            std::vector<uint16_t> expected_wire(count);
            const auto rounding = wire_kernels::pack(GetParam(), values.data(), wire.data() + misalignment, count);
            const auto expected_rounding = wire_kernels::reference::pack(GetParam(), expected.data(), expected_wire.data(), count);
            EXPECT_TRUE(same_bytes(values.data(), expected.data(), count * sizeof(float))) << count;
            EXPECT_TRUE(same_bytes(wire.data() + misalignment, expected_wire.data(), 2 * count)) << count;
            EXPECT_EQ(rounding.max_error, expected_rounding.max_error) << count;
            EXPECT_EQ(rounding.max_value, expected_rounding.max_value) << count;
            std::vector<float> back(count);
            wire_kernels::unpack(GetParam(), wire.data() + misalignment, back.data(), count);
            EXPECT_TRUE(same_bytes(back.data(), values.data(), count * sizeof(float))) << "what the sender keeps is what arrives";
        }
    }
}

TEST_P(WireKernels, RoundingTwiceChangesNothingAndTheErrorIsThatOfTheType) {
    std::vector<float> values(5000);
    RandomStream stream(6, "wire-test");
    for (float& value : values) value = stream.normal();
    std::vector<float> once = values;
    wire_kernels::round(GetParam(), once.data(), once.size());
    std::vector<float> twice = once;
    wire_kernels::round(GetParam(), twice.data(), twice.size());
    EXPECT_EQ(once, twice);
    EXPECT_NE(once, values);
    // Half a unit in the last place of 8 or 11 significant bits.
    const float limit = GetParam() == DataType::bf16 ? 1.0F / 256 : 1.0F / 2048;
    for (size_t index = 0; index < values.size(); ++index) {
        EXPECT_LE(std::fabs(once[index] - values[index]), limit * std::fabs(values[index]) + 1e-7F);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, WireKernels, testing::Values(DataType::bf16, DataType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace lockstep
