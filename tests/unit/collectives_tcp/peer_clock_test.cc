// When a peer counts as lost, on made-up times.
#include "collectives/tcp/peer_clock.h"

#include <vector>

#include <gtest/gtest.h>

namespace lockstep::tcp {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTimeout = 10 * kSecond;
constexpr int64_t kGrace = 2 * kSecond;

TEST(PeerClock, NobodyIsLostWhoIsNotWaitedFor) {
    const PeerClock clock{.waiting_since_ns = -1};
    EXPECT_FALSE(clock.is_lost(1000 * kSecond, kTimeout, kGrace));
}

TEST(PeerClock, TheTimeBeforeTheWaitDoesNotCount) {
    const PeerClock clock{.waiting_since_ns = 100 * kSecond};
    EXPECT_FALSE(clock.is_lost(110 * kSecond, kTimeout, kGrace));
    EXPECT_TRUE(clock.is_lost(110 * kSecond + 1, kTimeout, kGrace));
}

TEST(PeerClock, BytesAndNotedProgressStartTheLimitAnew) {
    PeerClock clock{.waiting_since_ns = 0};
    clock.on_bytes_moved(8 * kSecond);
    EXPECT_FALSE(clock.is_lost(17 * kSecond, kTimeout, kGrace));
    clock.on_heartbeat(17 * kSecond, kSecond, false);  // it got on at 16 s
    EXPECT_FALSE(clock.is_lost(25 * kSecond, kTimeout, kGrace));
    EXPECT_TRUE(clock.is_lost(27 * kSecond, kTimeout, kGrace));
}

TEST(PeerClock, AHeartbeatWithoutProgressDoesNotHelp) {
    PeerClock clock{.waiting_since_ns = 0};
    for (int64_t second = 1; second <= 11; ++second) clock.on_heartbeat(second * kSecond, second * kSecond, false);
    EXPECT_TRUE(clock.is_lost(11 * kSecond, kTimeout, kGrace));
}

TEST(PeerClock, AnAgeOlderThanTheClockIsHarmless) {
    PeerClock clock{.waiting_since_ns = 0};
    clock.on_heartbeat(5, INT64_MAX, false);
    EXPECT_EQ(clock.fresh_ns, 0);
}

// Ranks 0 <- 1 <- 2 <- 3: each waits for the next, the last is stuck from second 7 on and silent. Every second each tells the one
// before it the newest sign it has.
TEST(PeerClock, InAChainTheRankNextToTheCauseIsTheFirstToName) {
    std::vector<PeerClock> clocks(3, PeerClock{.waiting_since_ns = 0});
    int first_to_name = -1;
    for (int64_t second = 1; second < 40 && first_to_name < 0; ++second) {
        const int64_t now = second * kSecond;
        if (second <= 7) clocks[2].on_heartbeat(now, 0, false);
        for (size_t rank : {1, 0}) clocks[rank].on_heartbeat(now, now - clocks[rank + 1].fresh_ns, true);
        for (int rank = 0; rank < 3 && first_to_name < 0; ++rank) {
            if (clocks[static_cast<size_t>(rank)].is_lost(now, kTimeout, kGrace)) first_to_name = rank;
        }
    }
    EXPECT_EQ(first_to_name, 2);
}

TEST(PeerClock, ACircleOfWaitingRanksIsFound) {
    std::vector<PeerClock> clocks(3, PeerClock{.waiting_since_ns = 0});
    int64_t second = 1;
    for (bool found = false; !found && second < 60; ++second) {
        const int64_t now = second * kSecond;
        const std::vector<PeerClock> before = clocks;
        for (size_t rank = 0; rank < 3; ++rank) {
            // The peer, (rank + 1) % 3, waits for the one after it.
            clocks[rank].on_heartbeat(now, now - before[(rank + 1) % 3].fresh_ns, true);
            found = found || clocks[rank].is_lost(now, kTimeout, kGrace);
        }
    }
    EXPECT_LE(second, 15);
}

}  // namespace
}  // namespace lockstep::tcp
