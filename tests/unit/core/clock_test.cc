// Clocks, on made-up times.
#include "core/clock.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(AwakeClock, CountsAsTimePassesWhileItIsRead) {
    AwakeClock clock(kSecond, 100 * kSecond);
    EXPECT_EQ(clock.read(100 * kSecond), 100 * kSecond);
    for (int64_t second = 101; second <= 120; ++second) EXPECT_EQ(clock.read(second * kSecond), second * kSecond);
    EXPECT_EQ(clock.left_out_ns(), 0) << "a gap of just the longest is none";
}

TEST(AwakeClock, AnAbsenceCountsForOneGapOnly) {
    AwakeClock clock(kSecond, 0);
    EXPECT_EQ(clock.read(3600 * kSecond), kSecond);
    EXPECT_EQ(clock.left_out_ns(), 3599 * kSecond);
    EXPECT_EQ(clock.read(3600 * kSecond + kSecond / 2), kSecond + kSecond / 2);
}

// Who never comes to look in time still sees time pass, so that a peer's silence has an end.
TEST(AwakeClock, SlowReadersGetOn) {
    AwakeClock clock(kSecond, 0);
    for (int64_t second = 5; second <= 50; second += 5) clock.read(second * kSecond);
    EXPECT_EQ(clock.read(55 * kSecond), 11 * kSecond);
}

}  // namespace
}  // namespace lockstep
