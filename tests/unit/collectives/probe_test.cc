#include "collectives/probe.h"

#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/memory_transport.h"

namespace lockstep {
namespace {

using testing_support::MemoryNetwork;
using testing_support::MemoryNetworkOptions;

// A link of this latency and rate and nothing else: messages travel whole.
MemoryNetworkOptions link_of(int64_t latency_ns, double ns_per_byte) {
    constexpr size_t kPlenty = 64 << 20;
    return {.max_chunk_bytes = kPlenty,
            .link_bytes = kPlenty,
            .unexpected_bytes = kPlenty,
            .max_delay_ns = 0,
            .latency_ns = latency_ns,
            .ns_per_byte = ns_per_byte};
}

// All ranks probe at the same time, each in a thread.
std::vector<ProbeResult> probe_all(int rank_count, const MemoryNetworkOptions& link, const ProbeOptions& options) {
    MemoryNetwork network(rank_count, link);
    std::vector<int> ranks(static_cast<size_t>(rank_count));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::vector<ProbeResult> results(ranks.size());
    {
        std::vector<std::jthread> threads;
        for (const int rank : ranks) {
            threads.emplace_back([&, rank] {
                const auto transport = network.transport(rank);
                results[static_cast<size_t>(rank)] = probe(*transport, ranks, rank, options);
            });
        }
    }
    return results;
}

TEST(Probe, FindsLatencyAndRateOfTheLink) {
    const ProbeResult result = probe_all(2, link_of(3'000'000, 20.0), {.budget_ms = 300})[0];
    // Threads of a busy machine only add to what the link was told to take; the medians keep it within a few times.
    EXPECT_GE(result.link.message_us(), 2900.0);
    EXPECT_LT(result.link.message_us(), 30'000.0);
    EXPECT_GT(result.link.wire_ns_per_byte, 15.0);
    EXPECT_LT(result.link.wire_ns_per_byte, 100.0);
    EXPECT_GT(result.link.sum_ns_per_byte, 0.0);
    EXPECT_GE(result.link.overhead_us, 0.0);
    EXPECT_LE(2.0 * result.link.overhead_us, result.link.message_us() + 1e-9);
}

// As a connection does whose window has yet to grow: what counts is measured after that, also when there is time for one message
// only.
TEST(Probe, AConnectionThatBeginsSlowlyIsMeasuredAsTrainingWillHaveIt) {
    MemoryNetworkOptions link = link_of(100'000, 5.0);
    link.slow_bytes = 384 << 10;
    link.slow_ns_per_byte = 100.0;
    const ProbeResult result = probe_all(2, link, {.budget_ms = 40})[0];
    EXPECT_LT(result.link.wire_ns_per_byte, 60.0);
}

TEST(Probe, GivesAllRanksOfAnyNumberTheSameAnswer) {
    for (const int ranks : {2, 3, 5, 8, 11}) {
        const std::vector<ProbeResult> results = probe_all(ranks, link_of(200'000, 1.0), {.budget_ms = 40});
        for (const ProbeResult& result : results) {
            EXPECT_EQ(result.link, results[0].link) << ranks;
            EXPECT_EQ(result.worst_rank, results[0].worst_rank);
            EXPECT_EQ(result.worst_peer, results[0].worst_peer);
            EXPECT_GE(result.worst_rank, 0);
            EXPECT_NE(result.worst_rank, result.worst_peer);
            EXPECT_LE(result.best_message_us, result.link.message_us() + 1e-9);
        }
    }
}

TEST(Probe, EndsWithTheReasonWhenAPeerGivesUp) {
    MemoryNetwork network(2, {});
    const std::vector<int> ranks{0, 1};
    const auto mine = network.transport(0);
    const auto other = network.transport(1);
    std::jthread peer([&] { other->abort("no more"); });
    try {
        probe(*mine, ranks, 0, {});
        FAIL() << "no error";
    } catch (const CommError& error) {
        EXPECT_STREQ(error.what(), "rank 1 gave up: no more");
    }
}

}  // namespace
}  // namespace lockstep
