// A rank that goes while a peer does not read: the peer is cut off, so that it notices, and never takes half a message for a whole.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/collectives_tcp/ranks.h"

namespace lockstep {
namespace {

using namespace testing_support;
using testing::HasSubstr;

constexpr size_t kMoreThanTheKernelHolds = 80'000'000;

// Heartbeats so rare that none brings the news instead.
TcpOptions without_heartbeats() {
    TcpOptions options = quick_options();
    options.timeout_ms = 80'000;
    options.heartbeat_ms = 20'000;
    return options;
}

void wait_for(const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Until nothing has moved for a while.
void send_what_goes(Transport& transport) {
    for (int quiet = 0; quiet < 50;) quiet = transport.progress(1'000'000) ? 0 : quiet + 1;
}

// What rank 1 meets that has not read, once rank 0 has gone its way. Rank 0's socket lives on until rank 1 has looked.
std::string met_by_the_late_reader(const std::function<void(Transport&)>& goes) {
    std::atomic<bool> gone{false}, looked{false};
    const auto texts = TcpRanks{.options = without_heartbeats()}.run([&](const World& world, Transport& transport) -> std::string {
        std::vector<std::byte> bytes(kMoreThanTheKernelHolds);
        Transfer large = transfer(1 - world.rank, 1, bytes);
        if (world.rank == 0) {
            transport.post_send(large);
            send_what_goes(transport);
            EXPECT_FALSE(large.complete());
            goes(transport);
            gone = true;
            wait_for(looked);
            return "gone";
        }
        wait_for(gone);
        const std::string error = error_of([&] { stay(transport, 3000); });
        looked = true;
        return error;
    });
    EXPECT_EQ(texts[0], "gone");
    return texts[1];
}

TEST(TcpLeaving, APeerThatDoesNotReadIsCutOffByAnAbort) {
    const std::string met = met_by_the_late_reader([](Transport& transport) {
        transport.abort("no more");
        EXPECT_EQ(error_of([&] { transport.progress(0); }), "rank 0 gave up: no more");
    });
    EXPECT_THAT(met, HasSubstr("rank 0 died or lost its connection to rank 1"));
}

// The memory of a message that is under way is its owner's again: the peer gets nothing more from it, and no goodbye behind it.
TEST(TcpLeaving, WhoLeavesInTheMiddleOfAMessageCutsItOff) {
    std::atomic<bool> left{false};
    const std::vector<std::byte> bytes = pattern(kMoreThanTheKernelHolds, 5);
    std::vector<std::byte> sent = bytes;
    const auto texts = TcpRanks{.options = without_heartbeats()}.run([&](const World& world, Transport& transport) -> std::string {
        if (world.rank == 0) {
            Transfer large = transfer(1, 1, sent);
            transport.post_send(large);
            send_what_goes(transport);
            EXPECT_FALSE(large.complete());
            std::ranges::fill(sent, std::byte{0xEE});
            left = true;
            return "left";
        }
        wait_for(left);
        std::vector<std::byte> in(bytes.size());
        Transfer large = transfer(0, 1, in);
        transport.post_receive(large);
        const std::string error = error_of([&] { stay(transport, 3000); });
        EXPECT_FALSE(large.complete());
        EXPECT_TRUE(std::equal(in.begin(), in.begin() + static_cast<int64_t>(large.moved), bytes.begin()));
        return error;
    });
    EXPECT_EQ(texts[0], "left");
    EXPECT_THAT(texts[1], HasSubstr("rank 0 died or lost its connection to rank 1"));
}

}  // namespace
}  // namespace lockstep
