// The engine over a network in memory whose links delay, cut and reorder what they can: every schedule gives the right sums on all
// ranks, whatever the order of arrival, and never hangs.
#include "collectives/schedule_engine.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/communicator.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/memory_transport.h"
#include "tests/unit/engine/engine_ranks.h"

namespace lockstep {
namespace {

using namespace testing_support;
using schedule::Algorithm;
using schedule::Collective;
using schedule::Plan;

// Some ranks come late: the order in which operations become ready differs from rank to rank.
void sleep_a_little(RandomStream& random, int64_t most_us) {
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(static_cast<uint64_t>(most_us) + 1)));
}

TEST(ScheduleEngine, EveryScheduleSumsExactly) {
    for (const int rank_count : {1, 2, 3, 4, 5, 7, 8}) {
        const auto results = run_ranks(rank_count, {}, kTight, [&](ScheduleEngine& engine, Transport& transport, int rank) {
            std::string complaints;
            uint64_t sequence = 0;
            for (const Plan& plan : allreduce_plans()) {
                for (const size_t count : {0, 1, 15, 100, 5000}) {
                    std::vector<float> data = whole_numbers(rank, count);
                    run_one(engine, transport, request_for(plan, kFloats, data.data(), static_cast<int64_t>(count), ++sequence));
                    if (data != sum_of_whole_numbers(rank_count, count))
                        complaints += fmt::format("{} count {}\n", describe(plan), count);
                }
            }
            return complaints;
        });
        EXPECT_THAT(results, testing::Each("")) << rank_count << " ranks";
    }
}

TEST(ScheduleEngine, ReduceScatterAllgatherAndBroadcastDeliver) {
    for (const int rank_count : {2, 3, 5, 8}) {
        const auto results = run_ranks(rank_count, {}, kTight, [&](ScheduleEngine& engine, Transport& transport, int rank) {
            std::string complaints;
            uint64_t sequence = 0;
            constexpr size_t kCount = 3001;
            const auto [first, last] = Communicator::slice(kCount, rank, rank_count);
            for (const Algorithm algorithm : {Algorithm::halving_doubling, Algorithm::ring}) {
                std::vector<float> data = whole_numbers(rank, kCount);
                run_one(engine, transport,
                        request_for({.collective = Collective::reduce_scatter, .algorithm = algorithm, .radix = 4}, kFloats,
                                    data.data(), kCount, ++sequence));
                const std::vector<float> sums = sum_of_whole_numbers(rank_count, kCount);
                if (!std::equal(data.begin() + first, data.begin() + last, sums.begin() + first)) complaints += "reduce_scatter\n";

                std::vector<std::byte> bytes(kCount, std::byte{0xEE});
                std::fill(bytes.begin() + first, bytes.begin() + last, static_cast<std::byte>(rank));
                run_one(engine, transport,
                        request_for({.collective = Collective::allgather, .algorithm = algorithm, .radix = 4},
                                    {DataType::u8, DataType::u8}, bytes.data(), kCount, ++sequence));
                for (int owner = 0; owner < rank_count; ++owner) {
                    const auto [from, to] = Communicator::slice(kCount, owner, rank_count);
                    for (int64_t index = from; index < to; ++index) {
                        if (bytes[static_cast<size_t>(index)] != static_cast<std::byte>(owner)) complaints += "allgather\n";
                    }
                }
            }
            for (int root = 0; root < rank_count; ++root) {
                std::vector<std::byte> bytes(kCount, static_cast<std::byte>(rank));
                run_one(engine, transport,
                        request_for({.collective = Collective::broadcast, .algorithm = Algorithm::tree, .chunks = 2, .root = root},
                                    {DataType::u8, DataType::u8}, bytes.data(), kCount, ++sequence));
                if (bytes != std::vector<std::byte>(kCount, static_cast<std::byte>(root))) complaints += "broadcast\n";
            }
            return complaints;
        });
        EXPECT_THAT(results, testing::Each("")) << rank_count << " ranks";
    }
}

// Every rank starts at its own pace, keeps several operations in flight and sums random numbers: the bits never depend on that.
// LOCKSTEP_ENGINE_ORDERS sets how many random orders are tried.
TEST(ScheduleEngine, RandomReadyOrdersAndDelaysNeverChangeABitAndNeverHang) {
    const char* const wanted = std::getenv("LOCKSTEP_ENGINE_ORDERS");
    const int orders = wanted == nullptr ? 150 : std::atoi(wanted);
    const std::vector<Plan> plans = allreduce_plans();
    RandomStream choice(17, "orders");
    for (int order = 0; order < orders; ++order) {
        const int rank_count = 2 + static_cast<int>(choice.below(5));
        constexpr int kOperations = 6;
        std::vector<Plan> sequence_of_plans;
        std::vector<size_t> counts;
        for (int operation = 0; operation < kOperations; ++operation) {
            sequence_of_plans.push_back(plans[choice.below(plans.size())]);
            counts.push_back(choice.below(4) == 0 ? choice.below(9000) : choice.below(300));
        }
        const MemoryNetworkOptions network{.seed = choice.next_u64(),
                                           .max_chunk_bytes = 300 + choice.below(4000),
                                           .link_bytes = 600 + choice.below(8000),
                                           .unexpected_bytes = ScheduleEngine::unexpected_bytes_bound(kTight),
                                           .max_delay_ns = static_cast<int64_t>(choice.below(30'000))};
        std::vector<std::vector<std::string>> bits(2);
        for (auto& results : bits) {
            results = run_ranks(rank_count, network, kTight, [&](ScheduleEngine& engine, Transport& transport, int rank) {
                RandomStream pace(network.seed, "pace", static_cast<uint64_t>(rank), &results == bits.data() ? 0 : 1);
                std::vector<std::vector<float>> data;
                for (size_t index = 0; index < kOperations; ++index) data.push_back(random_floats(rank, counts[index], index));
                std::vector<int> handles;
                for (size_t index = 0; index < kOperations; ++index) {
                    if (pace.below(3) == 0) sleep_a_little(pace, 100);
                    drive(engine, transport, [&] { return engine.can_start(); });
                    handles.push_back(engine.start(request_for(sequence_of_plans[index], kFloats, data[index].data(),
                                                               static_cast<int64_t>(counts[index]), index + 1)));
                    if (pace.below(3) == 0) engine.advance();
                }
                std::string result;
                for (size_t index = 0; index < kOperations; ++index) {
                    drive(engine, transport, [&] { return engine.finished(handles[index]); });
                    engine.release(handles[index]);
                    result.append(reinterpret_cast<const char*>(data[index].data()), counts[index] * sizeof(float));
                }
                return result;
            });
            ASSERT_THAT(results, testing::Each(results[0])) << "order " << order << ": " << rank_count << " ranks";
        }
        ASSERT_EQ(bits[0], bits[1]) << "order " << order;
        std::vector<double> expected(counts[0]);
        for (int rank = 0; rank < rank_count; ++rank) {
            const std::vector<float> values = random_floats(rank, counts[0], 0);
            for (size_t index = 0; index < counts[0]; ++index) expected[index] += values[index];
        }
        for (size_t index = 0; index < counts[0]; ++index) {
            float value = 0.0F;
            std::memcpy(&value, bits[0][0].data() + index * sizeof(float), sizeof value);
            ASSERT_NEAR(value, expected[index], 1e-4) << "order " << order;
        }
    }
}

// Its owner sleeps when advance() has done nothing, so it must not say so when only its budget has ended.
TEST(ScheduleEngine, SaysThatItGotOnWhenItsBudgetEnds) {
    constexpr size_t kCount = 200'000;
    const EngineOptions options{.eager_bytes = 1 << 20, .sum_budget = 3000};
    const EngineBody body = [&](ScheduleEngine& engine, Transport& transport, int rank) -> std::string {
        std::vector<float> data = whole_numbers(rank, kCount);
        const int handle = engine.start(request_for(
            {.collective = Collective::allreduce, .algorithm = Algorithm::exchange, .radix = 2}, kFloats, data.data(), kCount, 1));
        std::string complaint;
        while (!engine.finished(handle)) {
            while (transport.progress(20'000'000)) {
            }
            while (engine.advance()) {
            }
            if (engine.finished(handle)) break;
            for (int again = 0; again < 1000; ++again) engine.advance();
            if (engine.finished(handle)) complaint = "advance() said that it did nothing, and did more when it was asked again";
        }
        engine.release(handle);
        return complaint;
    };
    const MemoryNetworkOptions network{.max_chunk_bytes = 1 << 16, .link_bytes = 1 << 20};
    for (const std::string& complaint : run_ranks(2, network, options, body)) EXPECT_EQ(complaint, "");
}

TEST(ScheduleEngine, ADisagreementNamesBothSides) {
    struct Case {
        Plan plan;
        DataType wire;
        int64_t count;
        std::string says;
    };
    const Plan exchange{.algorithm = Algorithm::exchange};
    const std::vector<Case> cases = {
        {exchange, DataType::f32, 999, "3996 bytes"},
        {exchange, DataType::f32, 90'000, "360000 bytes"},
        {exchange, DataType::bf16, 1000, "bf16"},
        {{.algorithm = Algorithm::ring}, DataType::f32, 1000, "ring"},
        {{.algorithm = Algorithm::exchange, .radix = 5}, DataType::f32, 1000, "exchange(5)"},
        {{.collective = Collective::broadcast, .algorithm = Algorithm::tree}, DataType::f32, 1000, "broadcast"},
    };
    for (const Case& each : cases) {
        const auto results = run_ranks(2, {}, {}, [&](ScheduleEngine& engine, Transport& transport, int rank) {
            std::vector<float> data(static_cast<size_t>(std::max<int64_t>(1000, each.count)));
            const ScheduleRequest right = request_for(exchange, kFloats, data.data(), 1000, 1);
            const ScheduleRequest wrong = request_for(each.plan, {DataType::f32, each.wire}, data.data(), each.count, 1);
            const int handle = engine.start(rank == 0 ? right : wrong);
            try {
                drive(engine, transport, [&] { return engine.finished(handle); });
            } catch (const CommError&) {
                engine.throw_if_mismatched();
                throw;
            }
            return std::string("no error");
        });
        for (const std::string& result : results) {
            EXPECT_THAT(result, testing::AllOf(testing::HasSubstr("ranks disagree at collective 1"), testing::HasSubstr("rank 0"),
                                               testing::HasSubstr("rank 1"), testing::HasSubstr(each.says)));
        }
    }
}

// Answers every send with a receive of the same bytes: the peer of an exchange between two ranks with equal data. Allocates
// nothing.
class EchoTransport final : public Transport {
public:
    std::string_view name() const override { return "echo"; }
    void post_send(Transfer& transfer) override { sends_[send_count_++] = &transfer; }
    void post_receive(Transfer& transfer) override { receives_[receive_count_++] = &transfer; }
    bool progress(int64_t) override {
        bool moved = false;
        for (size_t index = 0; index < receive_count_; ++index) {
            Transfer*& receive = receives_[index];
            for (size_t other = 0; receive != nullptr && other < send_count_; ++other) {
                Transfer*& send = sends_[other];
                if (send == nullptr || send->tag != receive->tag) continue;
                std::memcpy(receive->data, send->data, send->bytes);
                send->moved = receive->moved = send->bytes;
                send = receive = nullptr;
                moved = true;
            }
        }
        return moved;
    }
    void forget_completed() { send_count_ = receive_count_ = 0; }
    void note_progress() noexcept override {}
    void wake() noexcept override {}
    void abort(std::string_view) noexcept override {}

private:
    Transfer* sends_[64] = {};
    Transfer* receives_[64] = {};
    size_t send_count_ = 0;
    size_t receive_count_ = 0;
};

// Runs a request to its end; how much was allocated meanwhile.
int64_t allocations_of(ScheduleEngine& engine, EchoTransport& transport, const ScheduleRequest& request) {
    const int64_t before = testing_support::heap_allocation_count();
    const int handle = engine.start(request);
    while (!engine.finished(handle)) {
        engine.advance();
        transport.progress(0);
    }
    engine.release(handle);
    transport.forget_completed();
    return testing_support::heap_allocation_count() - before;
}

TEST(ScheduleEngine, AnOperationThatHasRunBeforeAllocatesNothing) {
    EchoTransport transport;
    ScheduleEngine engine(transport, 0, everybody(2), {});
    std::vector<float> data(200'000, 1.0F);
    float expected = 1.0F;
    const auto repeat = [&](DataType wire, uint64_t sequence) {
        ScheduleRequest request =
            request_for({.algorithm = Algorithm::exchange}, {DataType::f32, wire}, data.data(), 200'000, sequence);
        request.stable = true;
        const int64_t allocations = allocations_of(engine, transport, request);
        expected *= 2.0F;
        EXPECT_EQ(data[199'999], expected);
        return allocations;
    };
    EXPECT_GT(repeat(DataType::f32, 1), 0);
    EXPECT_GT(repeat(DataType::bf16, 2), 0);
    for (uint64_t sequence = 3; sequence < 9; ++sequence) {
        EXPECT_EQ(repeat(sequence % 2 == 0 ? DataType::bf16 : DataType::f32, sequence), 0) << sequence;
    }
}

// Ever new sizes, as of a program that calls allreduce with what it has: what is kept for them has a bound; what has a stable
// address stays, and is found again without an allocation.
TEST(ScheduleEngine, NewSizesAreForgottenInTheEndAndAStableAddressAllocatesNothing) {
    EchoTransport transport;
    ScheduleEngine engine(transport, 0, everybody(2), {});
    std::vector<float> data(4000, 0.0F);
    uint64_t sequence = 0;
    const auto run = [&](int64_t count, bool stable) {
        ScheduleRequest request = request_for({.algorithm = Algorithm::exchange}, kFloats, data.data(), count, ++sequence);
        request.stable = stable;
        return allocations_of(engine, transport, request);
    };
    run(4000, true);
    for (int64_t count = 1; count <= 500; ++count) run(count, false);
    EXPECT_LE(engine.prepared_count(), 1 + ScheduleEngine::kMostIdleKept);
    EXPECT_EQ(run(4000, true), 0) << "the stable one is still there";
    EXPECT_EQ(run(500, false), 0) << "and so is the newest of the others";
    EXPECT_GT(run(1, false), 0) << "the oldest was forgotten";
}

}  // namespace
}  // namespace lockstep
