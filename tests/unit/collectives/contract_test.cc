// What every Communicator must do, on every backend and 1 to 8 ranks, by real processes.
#include <unistd.h>

#include <cstring>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/communicator.h"
#include "collectives/kernels/reduce_kernels.h"
#include "collectives/node_sharing.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/random.h"
#include "tests/support/process_group.h"

namespace lockstep {
namespace {

using testing_support::ProcessGroup;
using testing_support::RankOutcome;

// Around every border of the native paths: 30 floats lie beside the flag, 128 and 4096 are copied, 65536 are a staging chunk; 1024
// travel with Gloo's header.
constexpr size_t kSizes[] = {0,   1,    2,    15,   16,   17,   29,   30,   31,   60,     61,     255,    256,
                             257, 1000, 1023, 1024, 1025, 2501, 4095, 4096, 4097, 65'535, 65'536, 65'537, (size_t{1} << 18) + 3};
constexpr size_t kCommonBytes = size_t{1} << 20;
constexpr size_t kPoolBytes = 2 * ((size_t{1} << 18) + 64) * sizeof(float);

CommunicatorOptions options_for(const std::string& name) {
    const bool is_mpi = name == "openmpi" || name == "mpich";
    return {.backend = is_mpi ? "mpi" : name,
            .mpi = is_mpi ? name : "auto",
            .timeout_ms = 20'000,
            .connect_timeout_ms = 20'000,
            .segment_bytes = kPoolBytes,
            .common_bytes = kCommonBytes};
}

float whole_number(int rank, size_t index) {
    return static_cast<float>((index * 7 + static_cast<size_t>(rank) * 13) % 101) - 50.0F;
}

std::vector<float> random_floats(int rank, size_t count, uint64_t purpose) {
    RandomStream stream(3, "collectives-test", purpose, static_cast<uint64_t>(rank));
    std::vector<float> values(count);
    for (float& value : values) value = (stream.uniform() - 0.5F) * (stream.next_u32() % 2 == 0 ? 1e-3F : 1e4F);
    return values;
}

// The oracle: the binary tree over ranks, the left subtree as large as a power of two can be, in plain loops.
std::vector<float> tree_sum(int first, int last, size_t count, uint64_t purpose) {
    if (last - first == 1) return random_floats(first, count, purpose);
    int left = 1;
    while (2 * left < last - first) left *= 2;
    std::vector<float> total = tree_sum(first, first + left, count, purpose);
    const std::vector<float> more = tree_sum(first + left, last, count, purpose);
    for (size_t index = 0; index < count; ++index) total[index] += more[index];
    return total;
}

bool same_bits(std::span<const float> left, std::span<const float> right) {
    return left.size() == right.size() && (left.empty() || std::memcmp(left.data(), right.data(), left.size_bytes()) == 0);
}

struct Case {
    std::string backend;
    int ranks;
};

class CommunicatorContract : public testing::TestWithParam<Case> {
protected:
    using Body = std::function<std::string(Communicator&)>;

    // Runs `body` on all ranks; every rank must return without an error, and its text is handed back.
    std::vector<std::string> texts_of_all_ranks(const Body& body, CommunicatorOptions options) {
        const ProcessGroup group{.size = GetParam().ranks};
        std::vector<std::string> texts;
        for (const RankOutcome& outcome : group.run([&](const World&world, Store&store) {
                 const auto communicator = make_communicator(world, store, options);
                 return body(*communicator);
             })) {
            EXPECT_FALSE(outcome.threw) << outcome.text;
            EXPECT_FALSE(outcome.timed_out);
            EXPECT_EQ(outcome.signal, 0);
            texts.push_back(outcome.threw ? "threw" : outcome.text);
        }
        return texts;
    }
    std::vector<std::string> texts_of_all_ranks(const Body& body) {
        return texts_of_all_ranks(body, options_for(GetParam().backend));
    }

    // `body` returns its complaints.
    void expect_no_complaint(const Body& body) { EXPECT_THAT(texts_of_all_ranks(body), testing::Each("")); }
};

TEST_P(CommunicatorContract, SumsWholeNumbersExactlyInsideAndOutsideThePool) {
    expect_no_complaint([](Communicator& communicator) {
        const World& world = communicator.world();
        std::string complaints;
        for (const bool in_pool : {true, false}) {
            for (const size_t count : kSizes) {
                HeapPool heap;
                Buffer buffer = (in_pool ? communicator.gradient_pool() : heap).allocate(count * sizeof(float));
                const std::span<float> data = buffer.f32();
                for (size_t index = 0; index < count; ++index) data[index] = whole_number(world.rank, index);
                communicator.allreduce(data, {.what = "bucket"}).wait();
                for (size_t index = 0; index < count; ++index) {
                    float expected = 0.0F;
                    for (int rank = 0; rank < world.size; ++rank) expected += whole_number(rank, index);
                    if (data[index] == expected) continue;
                    complaints +=
                        fmt::format("count {} pool {}: element {} is {}, not {}\n", count, in_pool, index, data[index], expected);
                    break;
                }
            }
        }
        return complaints;
    });
}

TEST_P(CommunicatorContract, GivesTheTreeSumBitForBit) {
    expect_no_complaint([](Communicator& communicator) {
        const World& world = communicator.world();
        std::string complaints;
        Buffer pool = communicator.gradient_pool().allocate(kPoolBytes);
        for (const size_t count : kSizes) {
            const std::vector<float> expected = tree_sum(0, world.size, count, count);
            std::vector<float> outside = random_floats(world.rank, count, count);
            // An odd place, so that slices are not aligned with anything.
            const std::span<float> inside = pool.f32().subspan(13, count);
            std::copy(outside.begin(), outside.end(), inside.begin());
            communicator.allreduce(outside, {.what = "bucket"}).wait();
            communicator.allreduce(inside, {.what = "bucket"}).wait();
            if (!same_bits(outside, expected)) complaints += fmt::format("count {} outside differs\n", count);
            if (!same_bits(inside, expected)) complaints += fmt::format("count {} inside differs\n", count);
        }
        return complaints;
    });
}

// Only shared memory can: the others say that they cannot, and a world of one shares with itself.
TEST_P(CommunicatorContract, SharesTheNodesMemoryOrSaysThatItCannot) {
    const bool shares = GetParam().backend == "native" || GetParam().ranks == 1;
    expect_no_complaint([shares](Communicator& communicator) {
        const World& world = communicator.world();
        NodeSharing* const node = communicator.node_sharing();
        if ((node != nullptr) != shares) return std::string("offered or not, against what was expected\n");
        if (node == nullptr) return std::string();
        std::string complaints;
        Buffer pool = communicator.gradient_pool().allocate(kPoolBytes);
        for (const size_t count : kSizes) {
            const std::span<float> data = pool.f32().subspan(13, count);
            const std::vector<float> mine = random_floats(world.rank, count, count);
            const std::vector<float> expected = tree_sum(0, world.size, count, count);
            std::ranges::copy(mine, data.begin());
            node->reduce_to_slices(data, {.what = "bucket"}).wait();
            const auto [begin, end] = node->node_slice(static_cast<int64_t>(count));
            const auto first = static_cast<size_t>(begin);
            const auto owned = static_cast<size_t>(end - begin);
            if (!same_bits(data.subspan(first, owned), std::span(expected).subspan(first, owned)))
                complaints += fmt::format("count {}: another sum\n", count);
            node->exchange_slices(data, {.what = "slices"});
            if (!same_bits(data, expected)) complaints += fmt::format("count {}: a slice did not arrive\n", count);
        }
        // Two buffers, so that the second does not lie on the first.
        Buffer front = node->common_pool().allocate(1000);
        Buffer common = node->common_pool().allocate(static_cast<size_t>(world.size) * sizeof(float));
        const std::span<float> seen_by_all = common.f32();
        const auto last = static_cast<size_t>(world.size - 1);
        if (seen_by_all[last] != 0.0F && world.rank != world.size - 1 && seen_by_all[last] != 10.0F)
            complaints += "common memory is not zero at first\n";
        for (int round = 1; round <= 20; ++round) {
            seen_by_all[static_cast<size_t>(world.rank)] = static_cast<float>(round * 10);
            node->node_barrier({.what = "meeting", .step = round});
            for (const float value : seen_by_all) {
                if (value != static_cast<float>(round * 10)) complaints += fmt::format("round {} saw {}\n", round, value);
            }
            node->node_barrier({.what = "parting", .step = round});
        }
        return complaints;
    });
}

// Half types: summed in fp32 over all ranks and rounded once, as the plain loops do.
TEST_P(CommunicatorContract, SumsHalfTypesWithOneRounding) {
    expect_no_complaint([](Communicator& communicator) {
        const World& world = communicator.world();
        std::string complaints;
        Buffer pool = communicator.gradient_pool().allocate(2 * 140'000);
        for (const DataType type : {DataType::bf16, DataType::f16}) {
            for (const size_t count : {size_t{1}, size_t{59}, size_t{60}, size_t{61}, size_t{513}, size_t{8193}, size_t{131'079}}) {
                std::vector<std::vector<uint16_t>> all;
                std::vector<const void*> inputs;
                for (int rank = 0; rank < world.size; ++rank) {
                    RandomStream stream(7, "halves", static_cast<uint64_t>(rank), count);
                    // Finite, of mixed sign and magnitude: the upper exponent bit stays clear.
                    all.emplace_back(count);
                    for (uint16_t& half : all.back()) half = static_cast<uint16_t>(stream.next_u32() & 0xbfff);
                }
                for (const auto& values : all) inputs.push_back(values.data());
                std::vector<uint16_t> expected(count);
                void* const output[] = {expected.data()};
                reduce_kernels::reference::sum(type, output, inputs, count);
                std::vector<uint16_t> outside = all[static_cast<size_t>(world.rank)];
                const std::span<uint16_t> inside(static_cast<uint16_t*>(pool.data()) + 5, count);
                std::copy(outside.begin(), outside.end(), inside.begin());
                const Work first = communicator.allreduce(std::as_writable_bytes(std::span(outside)), type, {.what = "bucket"});
                communicator.allreduce(std::as_writable_bytes(inside), type, {.what = "bucket"}).wait();
                first.wait();
                if (outside != expected) complaints += fmt::format("{} {} outside\n", to_string(type), count);
                if (!std::equal(inside.begin(), inside.end(), expected.begin()))
                    complaints += fmt::format("{} {} inside\n", to_string(type), count);

                std::vector<uint16_t> scattered = all[static_cast<size_t>(world.rank)];
                communicator.reduce_scatter(std::as_writable_bytes(std::span(scattered)), type, {.what = "slices"});
                const auto [begin, end] = Communicator::slice(static_cast<int64_t>(count), world.rank, world.size);
                if (!std::equal(scattered.begin() + begin, scattered.begin() + end, expected.begin() + begin))
                    complaints += fmt::format("{} {} scattered\n", to_string(type), count);
            }
        }
        return complaints;
    });
}

// A loop of test() is as good as a wait, and progress() in between carries the work out too.
TEST_P(CommunicatorContract, TestAndProgressAloneFinishOperations) {
    expect_no_complaint([](Communicator& communicator) {
        const World& world = communicator.world();
        for (const size_t count : {size_t{8}, size_t{3000}, size_t{200'000}}) {
            Buffer inside = communicator.gradient_pool().allocate(count * sizeof(float));
            std::vector<float> outside(count, 1.0F);
            std::fill(inside.f32().begin(), inside.f32().end(), 2.0F);
            const Work first = communicator.allreduce(outside, {.what = "bucket"});
            const Work second = communicator.allreduce(inside.f32(), {.what = "bucket"});
            const Deadline patience = Deadline::after_ms(20'000);
            while (!second.test() && !patience.expired()) {
                communicator.progress();
                usleep(100);
            }
            if (!first.test() || !second.test()) return fmt::format("{} never finished", count);
            const auto size = static_cast<float>(world.size);
            if (outside[count - 1] != size || inside.f32()[count / 2] != 2 * size) return fmt::format("{} is wrong", count);
        }
        return std::string();
    });
}

TEST_P(CommunicatorContract, GivesTheSameBitsOnAllRanksAndInEveryRun) {
    const Body body = [](Communicator& communicator) {
        const World& world = communicator.world();
        uint64_t hash = 0;
        for (const size_t count : {size_t{17}, size_t{2501}, size_t{300'001}}) {
            std::vector<float> data = random_floats(world.rank, count, 77);
            data[0] = world.rank == 1 ? std::numeric_limits<float>::infinity() : 1e-40F;  // infinite and denormal
            communicator.allreduce(data, {.what = "bucket"}).wait();
            hash = hash_bytes(data.data(), count * sizeof(float), hash);
        }
        return hash_hex(hash);
    };
    const std::vector<std::string> first = texts_of_all_ranks(body);
    const std::vector<std::string> second = texts_of_all_ranks(body);
    EXPECT_THAT(first, testing::Each(first[0]));
    EXPECT_EQ(first, second);
}

TEST_P(CommunicatorContract, RunsManyOperationsInFlightInOrder) {
    expect_no_complaint([](Communicator& communicator) {
        const World& world = communicator.world();
        constexpr int kOperations = 1500;  // more than the history: the ring must turn
        constexpr size_t kCount = 33;
        Buffer pool = communicator.gradient_pool().allocate(kOperations * kCount * sizeof(float));
        std::vector<Work> works;
        for (int operation = 0; operation < kOperations; ++operation) {
            const std::span<float> data = pool.f32().subspan(static_cast<size_t>(operation) * kCount, kCount);
            std::fill(data.begin(), data.end(), static_cast<float>(operation + world.rank));
            works.push_back(communicator.allreduce(data, {.what = "bucket", .step = 0, .bucket = operation}));
        }
        works.back().wait();
        std::string complaints;
        for (int operation = 0; operation < kOperations; ++operation) {
            if (!works[static_cast<size_t>(operation)].test()) complaints += "finished out of order\n";
            works[static_cast<size_t>(operation)].wait();  // again: allowed
            const float expected = static_cast<float>(world.size * operation + world.size * (world.size - 1) / 2);
            if (pool.f32()[static_cast<size_t>(operation) * kCount + 5] != expected)
                complaints += fmt::format("operation {}\n", operation);
        }
        const WorkTimes times = works.back().times();
        if (times.start_ns == 0 || times.end_ns < times.start_ns) complaints += "no times\n";
        if (times.arrived_ns < times.start_ns || times.arrived_ns > times.end_ns) complaints += "arrival outside the operation\n";
        return complaints;
    });
}

TEST_P(CommunicatorContract, ReduceScatterLeavesEachRankItsSlice) {
    expect_no_complaint([](Communicator& communicator) {
        const World& world = communicator.world();
        std::string complaints;
        Buffer pool = communicator.gradient_pool().allocate(kPoolBytes);
        for (const size_t count : kSizes) {
            const std::vector<float> expected = tree_sum(0, world.size, count, count);
            std::vector<float> outside = random_floats(world.rank, count, count);
            const std::span<float> inside = pool.f32().first(count);
            std::copy(outside.begin(), outside.end(), inside.begin());
            communicator.reduce_scatter(outside, {.what = "slices"});
            communicator.reduce_scatter(inside, {.what = "slices"});
            const auto [first, last] = Communicator::slice(static_cast<int64_t>(count), world.rank, world.size);
            const auto own = [&, from = first, to = last](std::span<const float> data) {
                return data.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
            };
            if (!same_bits(own(outside), own(expected))) complaints += fmt::format("count {} outside\n", count);
            if (!same_bits(own(inside), own(expected))) complaints += fmt::format("count {} inside\n", count);
        }
        return complaints;
    });
}

TEST_P(CommunicatorContract, AllgatherAndBroadcastDeliverEveryByte) {
    expect_no_complaint([](Communicator& communicator) {
        const World& world = communicator.world();
        std::string complaints;
        for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, size_t{4097}, size_t{700'001}}) {
            const auto byte_at = [](int rank, size_t index) {
                return static_cast<std::byte>((index * 31 + static_cast<size_t>(rank)) % 251);
            };
            std::vector<std::byte> mine(bytes);
            for (size_t index = 0; index < bytes; ++index) mine[index] = byte_at(world.rank, index);
            std::vector<std::byte> all(bytes * static_cast<size_t>(world.size));
            communicator.allgather(mine, all, {.what = "gather"});
            for (size_t index = 0; index < all.size(); ++index) {
                if (all[index] == byte_at(static_cast<int>(index / bytes), index % bytes)) continue;
                complaints += fmt::format("allgather of {}: byte {}\n", bytes, index);
                break;
            }
            for (int root = 0; root < world.size; ++root) {
                std::vector<std::byte> data = mine;
                communicator.broadcast(data, root, {.what = "weights"});
                for (size_t index = 0; index < bytes; ++index) {
                    if (data[index] == byte_at(root, index)) continue;
                    complaints += fmt::format("broadcast of {} from {}: byte {}\n", bytes, root, index);
                    break;
                }
            }
        }
        return complaints;
    });
}

TEST_P(CommunicatorContract, ABarrierHoldsEveryRankUntilTheLastArrives) {
    expect_no_complaint([](Communicator& communicator) {
        const World& world = communicator.world();
        communicator.barrier({.what = "start"});
        if (world.rank == world.size - 1) usleep(50'000);
        const int64_t arrival_ns = now_ns();
        communicator.barrier({.what = "meet"});
        const int64_t departure_ns = now_ns();
        std::vector<int64_t> arrivals_ns(static_cast<size_t>(world.size));
        communicator.allgather(std::as_bytes(std::span(&arrival_ns, 1)), std::as_writable_bytes(std::span(arrivals_ns)),
                               {.what = "times"});
        for (const int64_t other_ns : arrivals_ns) {
            if (departure_ns < other_ns) return std::string("left before another rank had arrived");
        }
        return std::string();
    });
}

TEST_P(CommunicatorContract, GathersTextsOfDifferentLengths) {
    expect_no_complaint([](Communicator& communicator) {
        const World& world = communicator.world();
        const auto text_of = [](int rank) { return std::string(static_cast<size_t>(rank) * 3000, static_cast<char>('a' + rank)); };
        const std::vector<std::string> texts = gather_texts(communicator, text_of(world.rank), "agreement");
        if (texts.size() != static_cast<size_t>(world.size)) return std::string("wrong number of texts");
        for (int rank = 0; rank < world.size; ++rank) {
            if (texts[static_cast<size_t>(rank)] != text_of(rank)) return fmt::format("text of rank {}", rank);
        }
        return std::string();
    });
}

TEST_P(CommunicatorContract, ArtificialDelayGrowsWithTheBytesAndLiesAfterTheArrival) {
    if (GetParam().ranks == 1) return;  // nothing is transferred
    CommunicatorOptions options = options_for(GetParam().backend);
    options.test_delay_ns_per_kib = 1'000'000;  // 40 KiB: 40 ms
    const auto texts = texts_of_all_ranks(
        [](Communicator& communicator) {
            std::vector<float> data(10'240);
            const Work work = communicator.allreduce(data, {.what = "bucket"});
            work.wait();
            return std::to_string(work.times().end_ns - work.times().arrived_ns);
        },
        options);
    for (const std::string& text : texts) EXPECT_GE(std::stoll(text), 40'000'000);
}

TEST_P(CommunicatorContract, SeveralCommunicatorsLiveBesideAndAfterEachOther) {
    const ProcessGroup group{.size = GetParam().ranks};
    for (const RankOutcome& outcome : group.run([](const World&world, Store&store) {
             for (int round = 0; round < 2; ++round) {
                 const auto left = make_communicator(world, store, options_for(GetParam().backend));
                 const auto right = make_communicator(world, store, options_for(GetParam().backend));
                 std::vector<float> ones(100, 1.0F);
                 std::vector<float> twos(100, 2.0F);
                 const Work first = left->allreduce(ones, {.what = "left"});
                 right->allreduce(twos, {.what = "right"}).wait();
                 first.wait();
                 const auto size = static_cast<float>(world.size);
                 if (ones[99] != size || twos[99] != 2 * size) return std::string("mixed up");
             }
             return std::string();
         })) {
        EXPECT_EQ(outcome.text, "");
    }
}

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    for (const char* backend : {"native", "tcp", "gloo"}) {
        for (const int ranks : {1, 2, 3, 4, 5, 8}) {
            // Eight processes with threads of their own show no more than five.
            if (ranks == 8 && std::string_view(backend) == "gloo") continue;
            cases.push_back({backend, ranks});
        }
    }
    // mpi_test.cc starts this program under mpirun for these.
    if (const std::string mpi = testing_support::surrounding_mpi(); !mpi.empty()) {
        cases = {{mpi, testing_support::surrounding_mpi_size()}};
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorContract, testing::ValuesIn(all_cases()),
                         [](const auto& each) { return fmt::format("{}_{}", each.param.backend, each.param.ranks); });

TEST(Backends, AllGiveTheSameBits) {
    for (const int ranks : {2, 3, 5}) {
        std::vector<std::string> hashes;
        for (const char* backend : {"native", "tcp", "gloo"}) {
            for (const RankOutcome& outcome : ProcessGroup{.size = ranks}.run([&](const World&world, Store&store) {
                     const auto communicator = make_communicator(world, store, options_for(backend));
                     uint64_t hash = 0;
                     for (const size_t count : kSizes) {
                         std::vector<float> data = random_floats(world.rank, count, count + 5);
                         communicator->allreduce(data, {.what = "bucket"}).wait();
                         hash = hash_bytes(data.data(), count * sizeof(float), hash);
                         communicator->allreduce(std::as_writable_bytes(std::span(data)), DataType::bf16, {.what = "halves"})
                             .wait();
                         hash = hash_bytes(data.data(), count * sizeof(float), hash);
                     }
                     return hash_hex(hash);
                 })) {
                EXPECT_FALSE(outcome.threw) << outcome.text;
                hashes.push_back(outcome.text);
            }
        }
        EXPECT_THAT(hashes, testing::Each(hashes[0]));
    }
}

TEST(Slice, CoversEveryElementOnceWithBordersOnSixteen) {
    for (const int64_t count : {0, 1, 15, 16, 17, 31, 1000, 2501, 1 << 20}) {
        for (int size = 1; size <= 9; ++size) {
            int64_t next = 0;
            for (int rank = 0; rank < size; ++rank) {
                const auto [first, last] = Communicator::slice(count, rank, size);
                EXPECT_EQ(first, next);
                EXPECT_LE(first, last);
                EXPECT_TRUE(first % 16 == 0 || first == count);
                EXPECT_LE(last - first, (count / size) + 32) << "slices are even";
                next = last;
            }
            EXPECT_EQ(next, count);
        }
    }
}

}  // namespace
}  // namespace lockstep
