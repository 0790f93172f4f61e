// The emulated network against the arithmetic it stands for.
#include "bench/netlab/emulated_switch.h"

#include <tuple>

#include <gtest/gtest.h>

namespace lockstep::netlab {
namespace {

constexpr int64_t kUs = 1000, kMs = 1'000'000;

using Arrival = std::tuple<int64_t, int, int>;  // ns, destination, mark

class EmulatedSwitchTest : public ::testing::Test {
protected:
    void send(int source, int destination, int mark, int64_t now_ns, size_t bytes = 1000) {
        std::vector<std::byte> packet(bytes);
        packet[0] = static_cast<std::byte>(mark);
        network_.accept(source, destination, packet, now_ns);
    }
    // Lets time pass as the relay does: from event to event.
    std::vector<Arrival> run() {
        std::vector<Arrival> arrivals;
        while (network_.next_event_ns() != EmulatedSwitch::kNever) {
            const int64_t now_ns = network_.next_event_ns();
            network_.deliver_due(now_ns, [&](int destination, std::span<const std::byte> packet) {
                arrivals.emplace_back(now_ns, destination, std::to_integer<int>(packet[0]));
            });
        }
        return arrivals;
    }

    EmulatedSwitch network_{3, {.delay_ns = 1 * kMs, .rate_bit_per_s = 1e9}};  // 1000 bytes take 8 us
};

TEST_F(EmulatedSwitchTest, APacketTakesItsTimeOnTheWireAndTheDelay) {
    send(0, 1, 7, 100);
    EXPECT_EQ(run(), (std::vector<Arrival>{{100 + 8 * kUs + kMs, 1, 7}}));
}

TEST_F(EmulatedSwitchTest, PacketsOfOneSenderQueueAtTheLineRate) {
    for (int mark = 0; mark < 3; ++mark) send(0, mark % 2 + 1, mark, 0);
    EXPECT_EQ(run(), (std::vector<Arrival>{{8 * kUs + kMs, 1, 0}, {16 * kUs + kMs, 2, 1}, {24 * kUs + kMs, 1, 2}}));
}

TEST_F(EmulatedSwitchTest, TwoSendersToOneReceiverShareItsPort) {
    send(0, 2, 1, 0);
    send(1, 2, 2, 1 * kUs);
    EXPECT_EQ(run(), (std::vector<Arrival>{{8 * kUs + kMs, 2, 1}, {16 * kUs + kMs, 2, 2}}));
}

TEST_F(EmulatedSwitchTest, DirectionsDoNotDisturbEachOther) {
    send(0, 1, 1, 0);
    send(1, 0, 2, 0);
    EXPECT_EQ(run(), (std::vector<Arrival>{{8 * kUs + kMs, 0, 2}, {8 * kUs + kMs, 1, 1}}));
}

TEST_F(EmulatedSwitchTest, NothingReachesOrLeavesANodeThatIsCutOffUntilItIsMended) {
    send(0, 1, 1, 0);  // on its way when the link is cut
    network_.set_cut(1, true);
    send(0, 1, 2, 1);
    send(1, 2, 3, 2);
    send(0, 2, 4, 3);
    EXPECT_EQ(run().size(), 1U);  // 4
    network_.set_cut(1, false);
    send(0, 1, 5, kMs * 10);
    EXPECT_EQ(run(), (std::vector<Arrival>{{11 * kMs + 8 * kUs, 1, 5}}));
}

TEST_F(EmulatedSwitchTest, WithoutARateOnlyTheDelayCounts) {
    network_ = EmulatedSwitch(3, {.delay_ns = 5});
    send(0, 1, 1, 0);
    send(0, 1, 2, 0);
    EXPECT_EQ(run(), (std::vector<Arrival>{{5, 1, 1}, {5, 1, 2}}));
}

}  // namespace
}  // namespace lockstep::netlab
