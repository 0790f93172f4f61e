// The contract of Transport on real sockets, threads as ranks, over IPv4 and IPv6.
#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "tests/support/allocation_counter.h"
#include "tests/unit/collectives_tcp/ranks.h"

namespace lockstep {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class TransportContract : public testing::TestWithParam<std::string> {
protected:
    std::vector<std::string> run(int size, const std::function<std::string(const World&, Transport&)>& body,
                                 const TcpOptions& options = quick_options()) {
        return TcpRanks{.size = size, .host = GetParam(), .options = options}.run(body);
    }
};

TEST_P(TransportContract, EveryRankExchangesWithEveryOther) {
    for (const int size : {1, 2, 3, 5}) {
        const auto texts = run(size, [](const World& world, Transport& transport) {
            const auto count = static_cast<size_t>(world.size);
            std::vector<std::vector<std::byte>> out(count), in(count);
            std::vector<Transfer> transfers;
            transfers.reserve(2 * count);
            for (int peer = 0; peer < world.size; ++peer) {
                if (peer == world.rank) continue;
                const auto index = static_cast<size_t>(peer);
                out[index] = pattern(1000 + static_cast<size_t>(world.rank), static_cast<uint64_t>(100 * world.rank + peer));
                in[index].resize(1000 + index);
                transport.post_receive(transfers.emplace_back(transfer(peer, 1, in[index])));
                transport.post_send(transfers.emplace_back(transfer(peer, 1, out[index])));
            }
            complete(transport, transfers);
            for (int peer = 0; peer < world.size; ++peer) {
                if (peer == world.rank) continue;
                const auto index = static_cast<size_t>(peer);
                if (in[index] != pattern(1000 + index, static_cast<uint64_t>(100 * peer + world.rank))) return "wrong bytes";
            }
            return "right";
        });
        EXPECT_THAT(texts, Each("right"));
    }
}

TEST_P(TransportContract, MessagesOfATagKeepTheirOrderAndTagsAreIndependent) {
    const auto texts = run(2, [](const World& world, Transport& transport) -> std::string {
        constexpr size_t kCount = 300;
        RandomStream random(3, "order");  // the same on both ranks
        std::vector<std::vector<std::byte>> bytes;
        std::vector<Transfer> transfers;
        for (size_t index = 0; index < kCount; ++index) {
            const size_t length = 1 + random.below(random.below(10) == 0 ? 700'000 : 3000);
            bytes.push_back(world.rank == 0 ? pattern(length, index) : std::vector<std::byte>(length));
            transfers.push_back(transfer(1 - world.rank, random.below(5), bytes.back(), static_cast<int32_t>(random.below(3))));
        }
        // Tag by tag at the receiver: every message of another tag comes early.
        for (uint64_t tag = 0; tag < 5; ++tag) {
            for (Transfer& each : transfers) {
                if (each.tag != tag) continue;
                world.rank == 0 ? transport.post_send(each) : transport.post_receive(each);
            }
        }
        complete(transport, transfers);
        for (size_t index = 0; index < kCount; ++index) {
            if (bytes[index] != pattern(bytes[index].size(), index)) return "message " + std::to_string(index) + " is wrong";
        }
        exchange_a_byte(transport, 1 - world.rank, 99);
        return "right";
    });
    EXPECT_THAT(texts, Each("right"));
}

TEST_P(TransportContract, ADifferentLengthIsNamedOnBothSides) {
    const auto texts = run(2, [](const World& world, Transport& transport) {
        std::vector<std::byte> bytes(world.rank == 0 ? 4096 : 5000);
        Transfer one = transfer(1 - world.rank, 0xAB, bytes);
        world.rank == 0 ? transport.post_send(one) : transport.post_receive(one);
        stay(transport, 5000);
        return "nothing noticed";
    });
    EXPECT_THAT(texts, Each(AllOf(HasSubstr("rank 0 sends a message of 4096 bytes where rank 1 expects 5000 bytes (tag 0xab)"),
                                  HasSubstr("same program, configuration and data"))));
}

TEST_P(TransportContract, AnAbortReachesAllWithinASecondAndKeepsItsReason) {
    std::atomic<int64_t> aborted_ns{0};
    const auto texts = run(4, [&](const World& world, Transport& transport) -> std::string {
        std::vector<std::byte> bytes(1000);
        Transfer never = transfer((world.rank + 1) % 4, 1, bytes);
        transport.post_receive(never);
        std::thread other;
        if (world.rank == 2) {
            other = std::thread([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                aborted_ns = now_ns();
                transport.abort("the loss is not finite");
            });
        }
        const std::string error = error_of([&] { stay(transport, 5000); });
        const double seconds = 1e-9 * static_cast<double>(now_ns() - aborted_ns);
        if (other.joinable()) other.join();
        EXPECT_LT(seconds, 1.0);
        EXPECT_EQ(error_of([&] { transport.progress(0); }), error) << "the first error stays";
        return error;
    });
    EXPECT_THAT(texts, Each("rank 2 gave up: the loss is not finite"));
}

TEST_P(TransportContract, AnAbortReachesAPeerThatHasStoppedReading) {
    const auto texts = run(2, [&](const World& world, Transport& transport) -> std::string {
        std::vector<std::byte> bytes(80'000'000);  // more than the kernel's buffers
        Transfer large = transfer(1 - world.rank, 1, bytes);
        if (world.rank == 0) {
            transport.post_send(large);
            stay(transport, 200);
            EXPECT_FALSE(large.complete());
            transport.abort("no more");
        }
        const int64_t start_ns = now_ns();
        const std::string error = error_of([&] { stay(transport, 5000); });
        EXPECT_LT(1e-9 * static_cast<double>(now_ns() - start_ns), 2.0);
        return error;
    });
    EXPECT_EQ(texts[0], "rank 0 gave up: no more");
    EXPECT_THAT(texts[1], HasSubstr("rank 0 "));
    EXPECT_THAT(texts[1], testing::Not(HasSubstr("no error")));
}

TEST_P(TransportContract, APeerThatLeavesIsMissedOnlyByWhoNeedsIt) {
    const auto texts = run(3, [&](const World& world, Transport& transport) -> std::string {
        std::vector<std::byte> word(5), last_words = pattern(3'000'000, 1);
        if (world.rank == 2) {
            // Its messages have been sent, so they arrive after it has gone.
            for (const int peer : {0, 1}) {
                Transfer farewell = transfer(peer, 1, last_words);
                transport.post_send(farewell);
                complete(transport, {&farewell});
            }
            return "left";
        }
        exchange_a_byte(transport, 1 - world.rank, 7);
        stay(transport, 200);
        std::vector<std::byte> in(last_words.size());
        Transfer receive = transfer(2, 1, in);
        transport.post_receive(receive);
        complete(transport, {&receive});
        EXPECT_EQ(in, last_words);
        exchange_a_byte(transport, 1 - world.rank, 8);
        if (world.rank == 1) return "content";
        Transfer missing = transfer(2, 2, word);
        transport.post_receive(missing);
        return error_of([&] { stay(transport, 5000); });
    });
    EXPECT_THAT(texts[0], HasSubstr("rank 2 left the job"));
    EXPECT_EQ(texts[2], "left");
}

TEST_P(TransportContract, ProgressSleepsUntilItIsWoken) {
    const auto texts = run(2, [&](const World&, Transport& transport) -> std::string {
        std::thread other([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            transport.wake();
        });
        const int64_t start_ns = now_ns();
        while (now_ns() - start_ns < 40'000'000) transport.progress(10'000'000'000);
        const double seconds = 1e-9 * static_cast<double>(now_ns() - start_ns);
        other.join();
        EXPECT_LT(seconds, 2.0);
        // And patience ends by itself.
        EXPECT_FALSE(transport.progress(1'000'000));
        EXPECT_FALSE(transport.progress(0));
        return "woken";
    });
    EXPECT_THAT(texts, Each("woken"));
}

TEST_P(TransportContract, ASteadyStateAllocatesNothing) {
    std::atomic<int64_t> before{0};
    std::atomic<int> arrived{0};
    std::atomic<bool> measured{false};
    const auto texts = run(2, [&](const World& world, Transport& transport) -> std::string {
        const int peer = 1 - world.rank;
        std::vector<std::byte> small(64), large(1'000'000), small_in(64), large_in(1'000'000);
        Transfer transfers[4];
        const auto step = [&](int index) {
            transfers[0] = transfer(peer, 1, large);
            transfers[1] = transfer(peer, 2, small, 1);
            transfers[2] = transfer(peer, 1, large_in);
            transfers[3] = transfer(peer, 2, small_in);
            // Receives after sends on every other step: messages come early.
            for (int each = 0; each < 4; ++each) {
                Transfer& one = transfers[(each + 2 * (index % 2)) % 4];
                &one < transfers + 2 ? transport.post_send(one) : transport.post_receive(one);
            }
            complete(transport, {&transfers[0], &transfers[1], &transfers[2], &transfers[3]});
        };
        for (int index = 0; index < 4; ++index) step(index);
        if (++arrived == 2) before = heap_allocation_count();
        while (before == 0) transport.progress(100'000);
        for (int index = 0; index < 30; ++index) step(index);
        const int64_t allocations = heap_allocation_count() - before;
        ++arrived;
        while (arrived < 4) transport.progress(100'000);
        measured = true;
        return allocations == 0 ? "none" : std::to_string(allocations) + " allocations";
    });
    EXPECT_THAT(texts, Each("none"));
}

TEST_P(TransportContract, UrgentMessagesPassALargeOneThatIsUnderWay) {
    const auto texts = run(2, [&](const World& world, Transport& transport) -> std::string {
        std::vector<std::byte> large(50'000'000), urgent(100);
        Transfer first = transfer(1 - world.rank, 1, large);
        Transfer second = transfer(1 - world.rank, 2, urgent, 1);
        if (world.rank == 0) {
            transport.post_send(first);
            while (first.moved == 0) transport.progress(1'000'000);
            transport.post_send(second);
            complete(transport, {&second});
            EXPECT_FALSE(first.complete());
        } else {
            transport.post_receive(first);
            transport.post_receive(second);
            complete(transport, {&second});
            EXPECT_FALSE(first.complete());
        }
        complete(transport, {&first});
        return "passed";
    });
    EXPECT_THAT(texts, Each("passed"));
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract, testing::Values("127.0.0.1", "::1"),
                         [](const auto& each) { return each.param == "::1" ? "IPv6" : "IPv4"; });

TEST(TcpTransport, HundredMegabytesEachWayAtOnceDoNotLockUp) {
    const auto texts = TcpRanks{}.run([](const World& world, Transport& transport) -> std::string {
        constexpr size_t kBytes = 100'000'000;
        std::vector<std::byte> out = pattern(kBytes, static_cast<uint64_t>(world.rank)), in(kBytes);
        Transfer send = transfer(1 - world.rank, 1, out);
        Transfer receive = transfer(1 - world.rank, 1, in);
        transport.post_send(send);
        // The receive comes late: until then both sides fill all buffers on the way. (The quicker one may post it, and take all,
        // before the slower one has looked.)
        for (int call = 0; call < 50; ++call) transport.progress(1'000'000);
        transport.post_receive(receive);
        complete(transport, {&send, &receive});
        return in == pattern(kBytes, static_cast<uint64_t>(1 - world.rank)) ? "right" : "wrong bytes";
    });
    EXPECT_THAT(texts, Each("right"));
}

TEST(TcpTransport, ASilentPeerIsNamedAfterTheTimeLimitAndNotBefore) {
    TcpOptions options = quick_options();
    options.timeout_ms = 600;
    const auto texts = TcpRanks{.options = options}.run([](const World& world, Transport& transport) -> std::string {
        if (world.rank == 1) {
            stay(transport, 300);  // alive, but then it hangs
            std::this_thread::sleep_for(std::chrono::milliseconds(1100));
            return error_of([&] { transport.progress(0); });
        }
        std::vector<std::byte> bytes(10);
        Transfer receive = transfer(1, 1, bytes);
        transport.post_receive(receive);
        const int64_t start_ns = now_ns();
        const std::string error = error_of([&] { stay(transport, 5000); });
        const double seconds = 1e-9 * static_cast<double>(now_ns() - start_ns);
        EXPECT_GT(seconds, 0.55);
        EXPECT_LT(seconds, 1.6);
        return error;
    });
    EXPECT_THAT(texts, Each(HasSubstr("rank 1 made no progress for ")));
    EXPECT_THAT(texts[0], HasSubstr("rank 0 waits for it"));
}

TEST(TcpTransport, APeerThatTakesNothingOfWhatIsSentIsNamed) {
    TcpOptions options = quick_options();
    options.timeout_ms = 500;
    const auto texts = TcpRanks{.options = options}.run([](const World& world, Transport& transport) -> std::string {
        if (world.rank == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1500));
            return error_of([&] { transport.progress(0); });
        }
        std::vector<std::byte> bytes(80'000'000);  // more than the kernel's buffers
        Transfer send = transfer(1, 1, bytes);
        transport.post_send(send);
        return error_of([&] { stay(transport, 5000); });
    });
    EXPECT_THAT(texts[0], AllOf(HasSubstr("rank 1 made no progress for "), HasSubstr("rank 0 waits for it")));
}

TEST(TcpTransport, ARankThatComputesForLongIsNotLost) {
    TcpOptions options = quick_options();
    options.timeout_ms = 400;
    const auto texts = TcpRanks{.size = 3, .options = options}.run([](const World& world, Transport& transport) -> std::string {
        // Rank 0 waits for rank 1, which waits for rank 2, which computes.
        std::vector<std::byte> bytes(30'000'000);
        if (world.rank == 2) {
            for (int part = 0; part < 20; ++part) {
                transport.note_progress();
                stay(transport, 50);
            }
        }
        Transfer receive = transfer(world.rank + 1, 1, bytes);
        if (world.rank < 2) {
            transport.post_receive(receive);
            complete(transport, {&receive});
        }
        Transfer send = transfer(world.rank - 1, 1, bytes);
        if (world.rank > 0) {
            transport.post_send(send);
            complete(transport, {&send});
        }
        return "met";
    });
    EXPECT_THAT(texts, Each("met"));
}

TEST(TcpTransport, APeerWithoutRoomThatComputesForLongIsNotCutOffByTheKernel) {
    TcpOptions options = quick_options();
    options.timeout_ms = 400;
    const auto texts = TcpRanks{.options = options}.run([](const World& world, Transport& transport) -> std::string {
        std::vector<std::byte> bytes(80'000'000);  // more than the kernel's buffers
        Transfer large = transfer(1 - world.rank, 1, bytes);
        stay(transport, 100);  // until the kernel's limit is set
        if (world.rank == 0) {
            transport.post_send(large);
            stay(transport, 1000);
            EXPECT_FALSE(large.complete());
        } else {
            for (int part = 0; part < 30; ++part) {
                transport.note_progress();
                stay(transport, 50);
            }
            transport.post_receive(large);
        }
        complete(transport, {&large});
        return "met";
    });
    EXPECT_THAT(texts, Each("met"));
}

TEST(TcpTransport, RanksThatWaitForEachOtherInACircleAreFound) {
    TcpOptions options = quick_options();
    options.timeout_ms = 400;
    const auto texts = TcpRanks{.size = 3, .options = options}.run([](const World& world, Transport& transport) {
        std::vector<std::byte> bytes(10);
        Transfer receive = transfer((world.rank + 1) % 3, 1, bytes);
        transport.post_receive(receive);
        stay(transport, 5000);
        return "nothing noticed";
    });
    EXPECT_THAT(texts, Each(HasSubstr("made no progress")));
}

TEST(TcpTransport, ConnectsOnlyTheRanksThatAreWanted) {
    // Two rails: 0 - 2 and 1 - 3.
    const auto texts =
        TcpRanks{.size = 4, .change = [](World& world, TcpOptions& options) { options.peers = {(world.rank + 2) % 4}; }}.run(
            [](const World& world, Transport& transport) {
                exchange_a_byte(transport, (world.rank + 2) % 4, 1);
                return "met";
            });
    EXPECT_THAT(texts, Each("met"));
}

TEST(TcpTransport, CongestionControlIsSetOrRefusedWithTheNamesThereAre) {
    TcpOptions options = quick_options();
    options.congestion_control = "reno";
    const auto met = TcpRanks{.options = options}.run([](const World& world, Transport& transport) {
        exchange_a_byte(transport, 1 - world.rank, 1);
        return "met";
    });
    EXPECT_THAT(met, Each("met"));
    options.congestion_control = "pigeons";
    const auto refused = TcpRanks{.options = options}.run([](const World&, Transport&) { return "met"; });
    EXPECT_THAT(refused[0], AllOf(HasSubstr("`pigeons`"), HasSubstr("reno")));
}

}  // namespace
}  // namespace lockstep
