// Several nodes, played by processes of this machine: the native backend sums inside the nodes in shared memory and between them
// over TCP.
#include <cstring>
#include <functional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/communicator.h"
#include "collectives/node_sharing.h"
#include "core/hash.h"
#include "core/random.h"
#include "tests/support/process_group.h"

namespace lockstep {
namespace {

using testing_support::ProcessGroup;
using testing_support::RankOutcome;

using Nodes = std::vector<int>;  // how many ranks each has
using Body = std::function<std::string(Communicator&)>;

constexpr size_t kSizes[] = {0, 1, 17, 1000, 40'001};
constexpr size_t kCommonBytes = size_t{64} << 10;
constexpr size_t kPoolBytes = size_t{1} << 20;

std::vector<std::string> run_nodes(const Nodes& nodes, CommunicatorOptions options, const Body& body) {
    ProcessGroup group{.size = 0};
    for (const int ranks : nodes) group.size += ranks;
    options.segment_bytes = kPoolBytes;
    options.common_bytes = kCommonBytes;
    options.timeout_ms = options.connect_timeout_ms = 20'000;
    std::vector<std::string> texts;
    for (const RankOutcome& outcome : group.run([&](World world, Store&store) {
             int first = 0;
             for (size_t node = 0; node < nodes.size(); first += nodes[node++]) {
                 if (world.rank < first || world.rank >= first + nodes[node]) continue;
                 world.node = static_cast<int>(node);
                 world.local_rank = world.rank - first;
                 world.local_size = nodes[node];
             }
             world.node_count = static_cast<int>(nodes.size());
             const auto communicator = make_communicator(world, store, options);
             return body(*communicator);
         })) {
        EXPECT_FALSE(outcome.threw) << outcome.text;
        EXPECT_EQ(outcome.signal, 0);
        EXPECT_FALSE(outcome.timed_out) << fmt::format("nodes of {} ranks", fmt::join(nodes, ", "));
        texts.push_back(outcome.text);
    }
    return texts;
}

std::vector<float> random_floats(int rank, size_t count) {
    RandomStream stream(3, "nodes-test", count, static_cast<uint64_t>(rank));
    std::vector<float> values(count);
    for (float& value : values) value = stream.normal();
    return values;
}

// Of all sizes, in and outside the pool, several at a time.
std::string hash_of_sums(Communicator& communicator, CollectiveLabel label) {
    Buffer pool = communicator.gradient_pool().allocate(kPoolBytes);
    std::vector<std::vector<float>> outside;
    std::vector<std::span<float>> data;
    size_t used = 0;
    for (const size_t count : kSizes) {
        outside.push_back(random_floats(communicator.world().rank, count));
        data.push_back(pool.f32().subspan(used, count));
        std::copy(outside.back().begin(), outside.back().end(), data.back().begin());
        used += count + 5;
    }
    for (std::vector<float>& values : outside) data.emplace_back(values);
    std::vector<Work> works;
    for (const std::span<float> values : data) works.push_back(communicator.allreduce(values, label));
    uint64_t hash = 0;
    for (size_t index = 0; index < data.size(); ++index) {
        works[index].wait();
        hash = hash_bytes(data[index].data(), data[index].size_bytes(), hash);
    }
    return hash_hex(hash);
}

TEST(Nodes, SumsAreExactOnEvenAndUnevenNodes) {
    for (const Nodes& nodes : {Nodes{2, 2}, Nodes{1, 1}, Nodes{1, 3}, Nodes{3, 2}, Nodes{2, 1, 2}}) {
        const auto texts = run_nodes(nodes, {.backend = "native"}, [](Communicator& communicator) {
            const World& world = communicator.world();
            std::string complaints;
            Buffer pool = communicator.gradient_pool().allocate(kPoolBytes);
            for (const size_t count : kSizes) {
                const std::span<float> data = pool.f32().subspan(3, count);
                for (size_t index = 0; index < count; ++index)
                    data[index] = static_cast<float>((index * 7 + world.rank * 13) % 101);
                communicator.allreduce(data, {.what = "bucket"}).wait();
                for (size_t index = 0; index < count; ++index) {
                    float expected = 0.0F;
                    for (int rank = 0; rank < world.size; ++rank) expected += static_cast<float>((index * 7 + rank * 13) % 101);
                    if (data[index] == expected) continue;
                    complaints += fmt::format("count {}: element {} is {}, not {}\n", count, index, data[index], expected);
                    break;
                }
            }
            return complaints;
        });
        EXPECT_THAT(texts, testing::Each("")) << fmt::format("nodes of {} ranks", fmt::join(nodes, ", "));
    }
}

TEST(Nodes, OnNodesOfEqualPowersOfTwoTheBitsAreThoseOfOneNode) {
    const Body body = [](Communicator& communicator) { return hash_of_sums(communicator, {.what = "bucket"}); };
    const auto one_node = run_nodes({4}, {.backend = "native"}, body);
    EXPECT_THAT(one_node, testing::Each(one_node[0]));
    EXPECT_EQ(run_nodes({2, 2}, {.backend = "native"}, body), one_node);
    EXPECT_EQ(run_nodes({4}, {.backend = "tcp"}, body), one_node);
    EXPECT_EQ(run_nodes({1, 1, 1, 1}, {.backend = "native", .plan = {.algorithm = "halving_doubling", .radix = 2}}, body),
              one_node);
    EXPECT_EQ(run_nodes({2, 2}, {.backend = "native", .shared_memory = false}, body), one_node);
}

TEST(Nodes, EachRankSendsItsSliceOnlyAndHalfOfItInHalfTheType) {
    const auto bytes_with = [](const CommunicatorOptions& options) {
        std::vector<int64_t> bytes;
        for (const std::string& text : run_nodes({2, 2}, options, [](Communicator& communicator) {
                 Buffer pool = communicator.gradient_pool().allocate(kPoolBytes);
                 communicator.take_usage();
                 communicator.allreduce(pool.f32().first(size_t{1} << 17), {.what = "bucket", .may_round = true}).wait();
                 return std::to_string(communicator.take_usage().sent_bytes);
             })) {
            bytes.push_back(std::stoll(text));
        }
        return bytes;
    };
    constexpr int64_t kBytes = 4 << 17;
    constexpr int64_t kMeetings = 2 * 4;
    EXPECT_THAT(bytes_with({.backend = "native"}), testing::Each(kBytes / 2 + kMeetings));
    EXPECT_THAT(bytes_with({.backend = "native", .wire = DataType::bf16}), testing::Each(kBytes / 4 + kMeetings));
    EXPECT_THAT(bytes_with({.backend = "native", .plan = {.algorithm = "halving_doubling", .radix = 4}}),
                testing::Each(kBytes * 3 / 2));
}

// Slices of each node cover all, hold the bits of an allreduce, and reach the others of the node; common memory is the node's.
TEST(Nodes, EachRankGetsItsSliceOfTheSumAndTheNodeHasMemoryInCommon) {
    for (const Nodes& nodes : {Nodes{2, 2}, Nodes{1, 1}, Nodes{1, 3}, Nodes{2, 1, 2}}) {
        const auto texts = run_nodes(nodes, {.backend = "native"}, [](Communicator& communicator) {
            const World& world = communicator.world();
            NodeSharing* const node = communicator.node_sharing();
            if (node == nullptr) return std::string("nothing is shared");
            std::string complaints;
            Buffer pool = communicator.gradient_pool().allocate(kPoolBytes);
            for (const size_t count : kSizes) {
                const std::span<float> data = pool.f32().subspan(16, count);
                std::vector<float> sum = random_floats(world.rank, count);
                std::ranges::copy(sum, data.begin());
                const Work scattered = node->reduce_to_slices(data, {.what = "bucket"});
                std::ranges::copy(sum, pool.f32().begin() + 100'000);
                const std::span<float> expected = pool.f32().subspan(100'000, count);
                communicator.allreduce(expected, {.what = "bucket"}).wait();
                scattered.wait();
                const auto [first, last] = node->node_slice(static_cast<int64_t>(count));
                if (std::memcmp(data.data() + first, expected.data() + first, static_cast<size_t>(last - first) * 4) != 0)
                    complaints += fmt::format("count {}: another sum\n", count);
                node->exchange_slices(data, {.what = "slices"});
                if (std::memcmp(data.data(), expected.data(), 4 * count) != 0)
                    complaints += fmt::format("count {}: a slice did not arrive\n", count);
            }
            Buffer common = node->common_pool().allocate(static_cast<size_t>(world.local_size) * sizeof(int64_t));
            const std::span<int64_t> ranks(static_cast<int64_t*>(common.data()), static_cast<size_t>(world.local_size));
            ranks[static_cast<size_t>(world.local_rank)] = world.rank;
            node->node_barrier({.what = "meeting"});
            for (size_t peer = 0; peer < ranks.size(); ++peer) {
                if (ranks[peer] != world.rank - world.local_rank + static_cast<int64_t>(peer)) complaints += "not this node's\n";
            }
            node->node_barrier({.what = "parting"});
            return complaints;
        });
        EXPECT_THAT(texts, testing::Each("")) << fmt::format("nodes of {} ranks", fmt::join(nodes, ", "));
    }
}

TEST(Nodes, SlicesCostBetweenNodesWhatAnAllreduceDoes) {
    const auto bytes_of = [](bool in_slices) {
        return run_nodes({2, 2}, {.backend = "native"}, [in_slices](Communicator& communicator) {
            Buffer pool = communicator.gradient_pool().allocate(kPoolBytes);
            const std::span<float> data = pool.f32().first(size_t{1} << 17);
            communicator.take_usage();
            if (in_slices) {
                communicator.node_sharing()->reduce_to_slices(data, {.what = "bucket"}).wait();
            } else {
                communicator.allreduce(data, {.what = "bucket"}).wait();
            }
            return std::to_string(communicator.take_usage().sent_bytes);
        });
    };
    EXPECT_EQ(bytes_of(true), bytes_of(false));
}

TEST(Nodes, RoundedOnTheWireAllRanksStillHoldTheSameBits) {
    for (const DataType wire : {DataType::bf16, DataType::f16}) {
        for (const Nodes& nodes : {Nodes{2, 2}, Nodes{1, 2}, Nodes{1, 1, 1}}) {
            const Body rounded = [](Communicator& communicator) {
                return hash_of_sums(communicator, {.what = "bucket", .may_round = true});
            };
            const Body exact = [](Communicator& communicator) { return hash_of_sums(communicator, {.what = "control"}); };
            const auto texts = run_nodes(nodes, {.backend = "native", .wire = wire}, rounded);
            const auto exact_texts = run_nodes(nodes, {.backend = "native", .wire = wire}, exact);
            EXPECT_THAT(texts, testing::Each(texts[0]));
            EXPECT_THAT(exact_texts, testing::Each(exact_texts[0]));
            EXPECT_NE(texts[0], exact_texts[0]);
            EXPECT_EQ(exact_texts, run_nodes(nodes, {.backend = "native"}, exact)) << "what may not be rounded is exact";
        }
    }
}

}  // namespace
}  // namespace lockstep
