#include "core/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace lockstep {
namespace {

// Known answers of Philox4x32-10 from the published test vectors of the algorithm.
TEST(Random, PhiloxMatchesPublishedVectors) {
    const auto zeros = philox4x32({0, 0, 0, 0}, {0, 0});
    EXPECT_EQ(zeros, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    const auto ones = philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff});
    EXPECT_EQ(ones, (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, StreamIsAFunctionOfItsKey) {
    RandomStream first(7, "augment", 3, 11);
    RandomStream again(7, "augment", 3, 11);
    for (int draw = 0; draw < 100; ++draw) EXPECT_EQ(first.next_u32(), again.next_u32());
}

TEST(Random, EveryPartOfTheKeyMatters) {
    std::set<uint64_t> firsts;
    firsts.insert(RandomStream(7, "augment", 3, 11).next_u64());
    firsts.insert(RandomStream(8, "augment", 3, 11).next_u64());
    firsts.insert(RandomStream(7, "shuffle", 3, 11).next_u64());
    firsts.insert(RandomStream(7, "augment", 4, 11).next_u64());
    firsts.insert(RandomStream(7, "augment", 3, 12).next_u64());
    firsts.insert(RandomStream(7, "augment", 11, 3).next_u64());
    EXPECT_EQ(firsts.size(), 6U);
}

TEST(Random, NormalHasUnitVariance) {
    RandomStream stream(1, "test");
    double sum = 0, squares = 0;
    constexpr int kDraws = 100'000;
    for (int draw = 0; draw < kDraws; ++draw) {
        const double value = stream.normal();
        sum += value;
        squares += value * value;
    }
    EXPECT_NEAR(sum / kDraws, 0.0, 0.02);  // five standard errors
    EXPECT_NEAR(squares / kDraws, 1.0, 0.03);
}

TEST(Random, BelowStaysInRangeAndCoversIt) {
    RandomStream stream(2, "test");
    std::set<uint64_t> seen;
    for (int draw = 0; draw < 1000; ++draw) seen.insert(stream.below(7));
    EXPECT_EQ(seen.size(), 7U);
    EXPECT_LT(*seen.rbegin(), 7U);
}

}  // namespace
}  // namespace lockstep
