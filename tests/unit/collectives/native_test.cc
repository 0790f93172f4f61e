// The native communicator from inside: threads act as ranks over one mapping, so that the thread sanitizer sees all of the
// memory they share; and the pure functions beneath it.
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <sstream>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/shared_memory/native_communicator.h"
#include "collectives/shared_memory/patience.h"
#include "collectives/shared_memory/segment_file.h"
#include "collectives/shared_memory/segment_transfer.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "net/store.h"
#include "tests/support/error_of.h"

namespace lockstep {
namespace {

std::vector<std::string> texts_of_threads(int size, const CommunicatorOptions& options,
                                          const std::function<std::string(NativeCommunicator&)>& body) {
    const SegmentLayout layout(size, {.pool_bytes_per_rank = options.segment_bytes, .common_bytes = options.common_bytes});
    const auto segment = std::make_shared<NodeSegment>(layout, create_segment_file(layout.total_bytes));
    std::vector<std::string> texts(static_cast<size_t>(size));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                NativeCommunicator communicator({.rank = rank, .size = size, .local_rank = rank, .local_size = size}, segment,
                                                options);
                texts[static_cast<size_t>(rank)] = body(communicator);
            } catch (const Error& error) {
                texts[static_cast<size_t>(rank)] = error.what();
            }
        });
    }
    threads.clear();
    return texts;
}

// Element `index` of what `rank` brings to operation `number`: signs and magnitudes are mixed, so another order gives other bits.
float value_of(uint64_t number, int rank, size_t index) {
    uint64_t bits = (number << 40) + (static_cast<uint64_t>(rank) << 32) + index + 1;
    bits = (bits ^ bits >> 31) * 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9;
    // Sign and fraction from one end, one of 64 exponents around 1 from the other.
    return std::bit_cast<float>((static_cast<uint32_t>(bits) & 0x807fffff) | (95 + static_cast<uint32_t>(bits >> 58)) << 23);
}

float tree_sum(uint64_t number, int first, int last, size_t index) {
    if (last - first == 1) return value_of(number, first, index);
    const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(last - first - 1)));
    return tree_sum(number, first, first + left, index) + tree_sum(number, first + left, last, index);
}

// One rank of a job that does many operations of random size, place and kind, in flight together, and lets random time pass
// wherever it can. What is done is the same on all ranks; when, differs.
class RandomRank {
public:
    static constexpr size_t kMostFloats = 70'000;  // more than a staging chunk
    static constexpr size_t kInFlight = 12;
    static constexpr size_t kPoolBytes = kInFlight * kMostFloats * sizeof(float);

    RandomRank(Communicator& communicator, uint64_t seed)
        : communicator_(communicator),
          plan_(seed, "fuzz-plan"),
          delays_(seed, "fuzz-delays", static_cast<uint64_t>(communicator.world().rank)),
          inside_(communicator.gradient_pool().allocate(kPoolBytes)),
          outside_(kInFlight * kMostFloats) {}

    std::string run(uint64_t operations) {
        for (uint64_t number = 1; number <= operations && complaint_.empty(); ++number) {
            pause();
            if (plan_.next_u32() % 16 == 0) {
                synchronous(number);
            } else {
                start(number);
            }
            if (delays_.next_u32() % 4 == 0) communicator_.progress();
            while (flights_.size() >= kInFlight - delays_.next_u32() % kInFlight && !flights_.empty()) finish_oldest();
        }
        while (!flights_.empty()) finish_oldest();
        return complaint_;
    }

private:
    struct InFlight {
        uint64_t number;
        std::span<float> data;
        Work work;
    };

    void pause() {
        const uint32_t choice = delays_.next_u32() % 16;
        if (choice == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays_.next_u32() % 100));
        if (choice < 4) std::this_thread::yield();
    }
    void start(uint64_t number) {
        constexpr size_t kCounts[] = {0, 1, 7, 16, 30, 31, 60, 100, 255, 256, 257, 511};
        size_t count = kCounts[plan_.next_u32() % std::size(kCounts)];
        if (plan_.next_u32() % 32 == 0) count = 4090 + plan_.next_u32() % 16;
        if (plan_.next_u32() % 256 == 0) count = kMostFloats;
        const std::span<float> memory = plan_.next_u32() % 2 == 0 ? inside_.f32() : std::span(outside_);
        // A place that no operation in flight uses.
        const std::span<float> data = memory.subspan(started_++ % kInFlight * kMostFloats + (kMostFloats - count) % 16, count);
        for (size_t index = 0; index < count; ++index) data[index] = value_of(number, communicator_.world().rank, index);
        flights_.push_back(
            {number, data,
             communicator_.allreduce(
                 data, {.what = "fuzz", .step = static_cast<int64_t>(number), .bucket = static_cast<int32_t>(count)})});
    }
    void synchronous(uint64_t number) {
        const World& world = communicator_.world();
        const CollectiveLabel label{.what = "between", .step = static_cast<int64_t>(number)};
        if (number % 3 == 0) return communicator_.barrier(label);
        const auto root = static_cast<int>(number % static_cast<uint64_t>(world.size));
        uint64_t word = world.rank == root ? number * 77 : 0;
        communicator_.broadcast(std::as_writable_bytes(std::span(&word, 1)), root, label);
        if (word != number * 77) complaint_ += fmt::format("broadcast {}\n", number);
    }
    void finish_oldest() {
        const InFlight oldest = flights_.front();
        flights_.pop_front();
        pause();
        oldest.work.wait();
        const World& world = communicator_.world();
        // One rank in turn looks at every element, the others at some.
        const size_t stride = oldest.number % static_cast<uint64_t>(world.size) == static_cast<uint64_t>(world.rank) ? 1 : 37;
        for (size_t index = 0; index < oldest.data.size(); index += stride) {
            const float expected = tree_sum(oldest.number, 0, world.size, index);
            if (std::bit_cast<uint32_t>(oldest.data[index]) == std::bit_cast<uint32_t>(expected)) continue;
            complaint_ += fmt::format("operation {} of {} floats: element {} is {}, not {}\n", oldest.number, oldest.data.size(),
                                      index, oldest.data[index], expected);
            return;
        }
    }

    Communicator& communicator_;
    RandomStream plan_;
    RandomStream delays_;
    Buffer inside_;
    std::vector<float> outside_;
    size_t started_ = 0;
    std::deque<InFlight> flights_;
    std::string complaint_;
};

// LOCKSTEP_RANDOM_ORDERS=10000 for the long run.
uint64_t operations_per_world() {
    const char* const total = std::getenv("LOCKSTEP_RANDOM_ORDERS");
    return (total == nullptr ? 1500 : std::strtoull(total, nullptr, 10)) / 5;
}

class RandomArrival : public testing::TestWithParam<int> {};

TEST_P(RandomArrival, GivesTheTreeSumBitForBit) {
    const CommunicatorOptions options{.timeout_ms = 30'000, .segment_bytes = RandomRank::kPoolBytes};
    EXPECT_THAT(
        texts_of_threads(GetParam(), options,
                         [](Communicator& communicator) { return RandomRank(communicator, 5).run(operations_per_world()); }),
        testing::Each(""));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RandomArrival, testing::Values(2, 3, 4, 5, 8));

// As a rank that dies between its question and the answer, which it can read no more.
void ask_and_leave(Store& store) {
    std::istringstream offer(store.wait("job/segment", 5'000).substr(1));
    size_t bytes = 0;
    struct {
        uint64_t secret = 0;
        int32_t rank = 1;
    } request{};
    std::string name;
    offer >> bytes >> request.secret >> name;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const FileHandle connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    shutdown(connection.get(), SHUT_RD);
    ASSERT_EQ(send(connection.get(), &request, sizeof request, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof request));
}

TEST(SegmentFile, ARankThatLeavesWhileItIsGivenTheSegmentIsNamedAsTheOneToLookAt) {
    const auto store = make_memory_store();
    const std::jthread peer([&] { ask_and_leave(*store); });
    const std::string message = testing_support::error_of<CommError>(
        [&] { create_and_hand_out({.rank = 0, .size = 2, .local_rank = 0, .local_size = 2}, *store, "job", 4096, 5'000); });
    EXPECT_THAT(message, testing::AllOf(testing::HasSubstr("rank 1 left"), testing::HasSubstr("its own output says why")));
}

TEST(NativeThreads, ADisagreementIsNamedByAllRanks) {
    for (const std::string& text : texts_of_threads(3, {}, [](Communicator& communicator) {
             std::vector<float> data(communicator.world().rank == 2 ? 9 : 10);
             communicator.allreduce(data, {.what = "bucket"}).wait();
             return std::string();
         })) {
        EXPECT_THAT(text,
                    testing::AllOf(testing::HasSubstr("disagree"), testing::HasSubstr("36 bytes"), testing::HasSubstr("40 bytes")));
    }
}

TEST(NativeThreads, AbortEndsWaitsOfAllRanks) {
    for (const std::string& text : texts_of_threads(3, {}, [](Communicator& communicator) {
             if (communicator.world().rank == 1) {
                 std::jthread other([&] { communicator.abort("enough"); });
             }
             communicator.barrier({.what = "first"});
             communicator.barrier({.what = "second"});
             if (communicator.world().rank == 0) communicator.barrier({.what = "that never comes"});
             return std::string("enough");
         })) {
        EXPECT_THAT(text, testing::HasSubstr("enough"));
    }
}

// A rank that is done with everything may leave at once, while others still have to look.
TEST(NativeThreads, ARankMayLeaveAsSoonAsItsShareIsDone) {
    for (int round = 0; round < 20; ++round) {
        EXPECT_THAT(texts_of_threads(3, {.segment_bytes = 4096 * sizeof(float)},
                                     [](Communicator& communicator) {
                                         Buffer data = communicator.gradient_pool().allocate(4096 * sizeof(float));
                                         communicator.allreduce(data.f32(), {.what = "last"}).wait();
                                         return std::string();
                                     }),
                    testing::Each(""));
    }
}

TEST(NativeThreads, SlicesSummedAndGatheredAgainAreAnAllreduce) {
    constexpr size_t kMost = 140'003;
    for (const int ranks : {1, 2, 3, 5}) {
        EXPECT_THAT(
            texts_of_threads(
                ranks, {.segment_bytes = kMost * sizeof(float)},
                [](NativeCommunicator& communicator) {
                    const World& world = communicator.world();
                    Buffer pool = communicator.gradient_pool().allocate(kMost * sizeof(float));
                    std::vector<float> heap(kMost);
                    for (const size_t count : {size_t{0}, size_t{5}, size_t{30}, size_t{200}, size_t{257}, size_t{5000}, kMost}) {
                        for (const std::span<float> memory : {pool.f32(), std::span(heap)}) {
                            const std::span<float> data = memory.first(count);
                            for (size_t index = 0; index < count; ++index) data[index] = value_of(count, world.rank, index);
                            const auto bytes = std::as_writable_bytes(data);
                            communicator.start_reduce_scatter(bytes, DataType::f32, {.what = "slices"}).wait();
                            communicator.start_allgather_slices(bytes, DataType::f32, {.what = "slices"}).wait();
                            for (size_t index = 0; index < count; ++index) {
                                if (data[index] != tree_sum(count, 0, world.size, index))
                                    return fmt::format("{}: {}", count, index);
                            }
                        }
                    }
                    return std::string();
                }),
            testing::Each(""));
    }
}

// Arrival and end belong to the operation, not to the moment at which a busy rank looks.
TEST(NativeThreads, TimesTellWhenTheLastRankCameNotWhenThisOneLooked) {
    std::atomic<int> issued = 0;
    const auto texts = texts_of_threads(2, {.segment_bytes = 8192}, [&](NativeCommunicator& communicator) {
        Buffer data = communicator.gradient_pool().allocate(8192);
        const Work work = communicator.allreduce(data.f32(), {.what = "bucket"});
        ++issued;
        while (issued < 2) std::this_thread::yield();
        const int64_t both_came_ns = now_ns();
        if (communicator.world().rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));  // computes, does not look
        const int64_t looks_ns = now_ns();
        work.wait();
        const WorkTimes times = work.times();
        if (times.arrived_ns > both_came_ns) return std::string("arrival is when this rank looked");
        if (communicator.world().rank == 0 && times.end_ns < looks_ns) return std::string("the end came before this rank's share");
        return fmt::format("{} {}", times.arrived_ns, times.end_ns);
    });
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_THAT(texts[0], testing::Not(testing::HasSubstr("this rank")));
}

TEST(SegmentPaths, FollowFromKindSizeAndPlace) {
    const auto path_of = [](OperationKind kind, size_t bytes, int64_t place) {
        return choose_path({.kind = kind, .byte_count = bytes}, place, path_limits(false));
    };
    const SegmentPathLimits limits;
    for (const OperationKind kind : {OperationKind::allreduce, OperationKind::reduce_scatter}) {
        for (const int64_t place : {int64_t{-1}, int64_t{0}, int64_t{64}}) {
            EXPECT_EQ(path_of(kind, 0, place), SegmentPath::inlined);
            EXPECT_EQ(path_of(kind, 120, place), SegmentPath::inlined);
            EXPECT_EQ(path_of(kind, 124, place), SegmentPath::copied);
        }
        EXPECT_EQ(path_of(kind, limits.copied_bytes_inside + 4, 64), SegmentPath::direct);
        EXPECT_EQ(path_of(kind, limits.copied_bytes_outside, -1), SegmentPath::copied);
        EXPECT_EQ(path_of(kind, limits.copied_bytes_outside + 4, -1), SegmentPath::staged);
    }
    const Operation small{.kind = OperationKind::allreduce, .byte_count = limits.copied_bytes_outside};
    EXPECT_EQ(choose_path(small, 64, path_limits(false)), SegmentPath::direct);
    EXPECT_EQ(choose_path(small, 64, path_limits(true)), SegmentPath::copied) << "a meeting costs more where cores are shared";
    EXPECT_EQ(path_of(OperationKind::barrier, 0, -1), SegmentPath::inlined);
    EXPECT_EQ(path_of(OperationKind::broadcast, 1 << 20, -1), SegmentPath::staged);
}

TEST(Patience, BeginsAnewAfterAStep) {
    using std::chrono::steady_clock;
    Patience patience(true);
    const auto end = steady_clock::now() + std::chrono::milliseconds(10);
    while (steady_clock::now() < end) patience.pass();
    EXPECT_TRUE(patience.pass()) << "it sleeps by now, and every sleep is followed by a look";
    patience.renew();
    EXPECT_FALSE(patience.pass());
}

TEST(Patience, KnowsWhetherRanksShareCores) {
    const auto set_of = [](std::initializer_list<int> cores) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (const int core : cores) CPU_SET(core, &set);
        return set;
    };
    using Sets = std::vector<cpu_set_t>;
    EXPECT_FALSE(shares_cores(Sets{set_of({0}), set_of({1})}, 0));
    EXPECT_FALSE(shares_cores(Sets{set_of({0, 1}), set_of({0, 1})}, 1));
    EXPECT_TRUE(shares_cores(Sets{set_of({0, 1}), set_of({0, 1}), set_of({0, 1})}, 0));
    EXPECT_TRUE(shares_cores(Sets{set_of({0}), set_of({1}), set_of({0}), set_of({1})}, 3));
    EXPECT_FALSE(shares_cores(Sets{set_of({0}), set_of({0}), set_of({2, 3})}, 2));
    EXPECT_TRUE(shares_cores(Sets{set_of({0}), set_of({})}, 1)) << "an unknown set counts as shared";
}

TEST(OperationSignature, HashChangesWithEveryField) {
    const Operation base{
        .kind = OperationKind::allreduce, .label = {.what = "bucket", .step = 3, .bucket = 1}, .byte_count = 4096, .sequence = 7};
    std::vector<Operation> others(7, base);
    others[0].kind = OperationKind::reduce_scatter;
    others[1].type = DataType::bf16;
    others[2].label.what = "buckets";
    others[3].label.step = 4;
    others[4].label.bucket = 2;
    others[5].byte_count = 4100;
    others[6].root = 1;
    const auto upper = [](const OperationSignature& signature) { return signature.plan_hash >> 32; };  // what the flags carry
    for (const Operation& other : others)
        EXPECT_NE(upper(OperationSignature::of(other, 0)), upper(OperationSignature::of(base, 0)));
    EXPECT_NE(upper(OperationSignature::of(base, 0)), upper(OperationSignature::of(base, 64)));
    EXPECT_EQ(upper(OperationSignature::of(base, 0)), upper(OperationSignature::of(base, 0)));
}

}  // namespace
}  // namespace lockstep
