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

namespace lockstep {
namespace {

using schedule::Algorithm;
using schedule::Collective;
using schedule::Plan;
using testing_support::MemoryNetwork;
using testing_support::MemoryNetworkOptions;

constexpr ElementFormat kFloats{DataType::f32, DataType::f32};

// Little may be sent unasked, and little is kept by a receiver: credit and its bound are at work in every test.
constexpr EngineOptions kTight{.eager_bytes = 2048, .eager_window_bytes = 4096, .sum_budget = 3000};

std::vector<std::vector<int>> everybody(int rank_count) {
    std::vector<int> ranks(static_cast<size_t>(rank_count));
    for (int rank = 0; rank < rank_count; ++rank) ranks[static_cast<size_t>(rank)] = rank;
    return {ranks};
}

// What one rank does in a test; its complaints, or the error it met.
using Body = std::function<std::string(ScheduleEngine&, Transport&, int rank)>;

std::vector<std::string> run_ranks(int rank_count, const MemoryNetworkOptions& network_options, const EngineOptions& options,
                                   const Body& body, MemoryNetwork* network = nullptr) {
    std::unique_ptr<MemoryNetwork> own;
    if (network == nullptr) {
        own = std::make_unique<MemoryNetwork>(rank_count, network_options);
        network = own.get();
    }
    std::vector<std::string> results(static_cast<size_t>(rank_count));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < rank_count; ++rank) {
        threads.emplace_back([&, rank] {
            const auto transport = network->transport(rank);
            ScheduleEngine engine(*transport, rank, everybody(rank_count), options);
            try {
                results[static_cast<size_t>(rank)] = body(engine, *transport, rank);
            } catch (const Error& error) {
                transport->abort(error.what());
                results[static_cast<size_t>(rank)] = error.what();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
}

void drive(ScheduleEngine& engine, Transport& transport, const std::function<bool()>& until) {
    while (!until()) {
        if (!engine.advance())
            transport.progress(1'000'000);
        else
            transport.progress(0);
    }
}

ScheduleRequest request_for(const Plan& plan, const ElementFormat& format, void* data, int64_t count, uint64_t sequence) {
    Operation operation{.kind = OperationKind::allreduce, .label = {.what = "bucket", .step = 3, .bucket = 1}};
    operation.byte_count = static_cast<size_t>(count) * format.value_bytes();
    operation.sequence = sequence;
    operation.root = plan.root;
    if (plan.collective == Collective::reduce_scatter) operation.kind = OperationKind::reduce_scatter;
    if (plan.collective == Collective::allgather) operation.kind = OperationKind::allgather;
    if (plan.collective == Collective::broadcast) operation.kind = OperationKind::broadcast;
    return {.number = sequence,
            .operation = OperationSignature::of(operation, -1),
            .plan = plan,
            .format = format,
            .data = static_cast<std::byte*>(data),
            .element_count = count};
}

void run_one(ScheduleEngine& engine, Transport& transport, const ScheduleRequest& request) {
    const int handle = engine.start(request);
    drive(engine, transport, [&] { return engine.finished(handle); });
    engine.release(handle);
}

float whole_number(int rank, size_t index) {
    return static_cast<float>((index * 7 + static_cast<size_t>(rank) * 13) % 101) - 50.0F;
}

std::vector<float> whole_numbers(int rank, size_t count) {
    std::vector<float> values(count);
    for (size_t index = 0; index < count; ++index) values[index] = whole_number(rank, index);
    return values;
}

std::vector<float> sum_of_whole_numbers(int rank_count, size_t count) {
    std::vector<float> sums(count, 0.0F);
    for (int rank = 0; rank < rank_count; ++rank) {
        for (size_t index = 0; index < count; ++index) sums[index] += whole_number(rank, index);
    }
    return sums;
}

std::vector<float> random_floats(int rank, size_t count, uint64_t purpose) {
    RandomStream stream(3, "engine-test", purpose, static_cast<uint64_t>(rank));
    std::vector<float> values(count);
    for (float& value : values) value = stream.normal();
    return values;
}

std::vector<Plan> allreduce_plans() {
    std::vector<Plan> plans;
    for (const int radix : {2, 3, 4, 16}) plans.push_back({.algorithm = Algorithm::exchange, .radix = radix});
    for (const int radix : {2, 4, 16}) plans.push_back({.algorithm = Algorithm::halving_doubling, .radix = radix});
    for (const int chunks : {1, 3}) {
        plans.push_back({.algorithm = Algorithm::ring, .chunks = chunks});
        plans.push_back({.algorithm = Algorithm::tree, .chunks = chunks});
        plans.push_back({.algorithm = Algorithm::double_tree, .chunks = chunks});
    }
    return plans;
}

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

TEST(ScheduleEngine, WireTypesLeaveTheSameBitsOnAllRanksWithTheErrorOfTheType) {
    for (const DataType wire : {DataType::bf16, DataType::f16}) {
        for (const int rank_count : {2, 3, 4, 6, 7}) {
            const auto results = run_ranks(rank_count, {}, kTight, [&](ScheduleEngine& engine, Transport& transport, int rank) {
                std::string bits;
                uint64_t sequence = 0;
                for (const Plan& plan : allreduce_plans()) {
                    constexpr size_t kCount = 3001;
                    std::vector<float> data = random_floats(rank, kCount, 9);
                    std::vector<double> expected(kCount);
                    for (int each = 0; each < rank_count; ++each) {
                        const std::vector<float> values = random_floats(each, kCount, 9);
                        for (size_t index = 0; index < kCount; ++index) expected[index] += values[index];
                    }
                    run_one(engine, transport, request_for(plan, {DataType::f32, wire}, data.data(), kCount, ++sequence));
                    bits.append(reinterpret_cast<const char*>(data.data()), kCount * sizeof(float));
                    // Every partial sum is rounded at most once on each of its ways; values reach about 4 per rank.
                    const double unit = wire == DataType::bf16 ? 1.0 / 256 : 1.0 / 2048;
                    for (size_t index = 0; index < kCount; ++index) {
                        if (std::abs(data[index] - expected[index]) > unit * 4.0 * rank_count * rank_count) {
                            return fmt::format("rank {}: {} element {}: {} not {}", rank, describe(plan), index, data[index],
                                               expected[index]);
                        }
                    }
                }
                const float rounding = engine.take_rounding();
                if (!(rounding > 1e-5F && rounding < 1.0F / 256)) return fmt::format("rank {}: rounding {}", rank, rounding);
                if (engine.take_rounding() != 0.0F) return fmt::format("rank {}: rounding was not taken", rank);
                return bits;
            });
            for (const std::string& result : results) {
                EXPECT_EQ(result.size(), results[0].size()) << result.substr(0, 200);
                EXPECT_TRUE(result == results[0]) << to_string(wire) << " on " << rank_count << " ranks: bits differ";
            }
        }
    }
}

TEST(ScheduleEngine, HalfTheBytesTravelWithAWireTypeOfTwoBytes) {
    const auto results = run_ranks(2, {}, kTight, [&](ScheduleEngine& engine, Transport& transport, int rank) {
        std::vector<float> data = whole_numbers(rank, 4096);
        run_one(engine, transport, request_for({.algorithm = Algorithm::exchange}, kFloats, data.data(), 4096, 1));
        const uint64_t full_bytes = engine.sent_bytes();
        run_one(engine, transport,
                request_for({.algorithm = Algorithm::exchange}, {DataType::f32, DataType::bf16}, data.data(), 4096, 2));
        return fmt::format("{} {}", full_bytes, engine.sent_bytes() - full_bytes);
    });
    EXPECT_THAT(results, testing::Each(fmt::format("{} {}", 4096 * 4, 4096 * 2)));
}

// Its owner sleeps when advance() has done nothing, so it must not say so when only its budget has ended.
TEST(ScheduleEngine, SaysThatItGotOnWhenItsBudgetEnds) {
    constexpr size_t kCount = 200'000;
    const EngineOptions options{.eager_bytes = 1 << 20, .sum_budget = 3000};
    const Body body = [&](ScheduleEngine& engine, Transport& transport, int rank) -> std::string {
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

TEST(ScheduleEngine, AnOperationThatHasRunBeforeAllocatesNothing) {
    EchoTransport transport;
    ScheduleEngine engine(transport, 0, everybody(2), {});
    std::vector<float> data(200'000, 1.0F);
    float expected = 1.0F;
    const auto repeat = [&](DataType wire, uint64_t sequence) {
        ScheduleRequest request =
            request_for({.algorithm = Algorithm::exchange}, {DataType::f32, wire}, data.data(), 200'000, sequence);
        request.stable = true;
        const int64_t before = testing_support::heap_allocation_count();
        const int handle = engine.start(request);
        while (!engine.finished(handle)) {
            engine.advance();
            transport.progress(0);
        }
        engine.release(handle);
        transport.forget_completed();
        expected *= 2.0F;
        EXPECT_EQ(data[199'999], expected);
        return testing_support::heap_allocation_count() - before;
    };
    EXPECT_GT(repeat(DataType::f32, 1), 0);
    EXPECT_GT(repeat(DataType::bf16, 2), 0);
    for (uint64_t sequence = 3; sequence < 9; ++sequence) {
        EXPECT_EQ(repeat(sequence % 2 == 0 ? DataType::bf16 : DataType::f32, sequence), 0) << sequence;
    }
}

}  // namespace
}  // namespace lockstep
