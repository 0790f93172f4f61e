// Gradients in fewer bits: where the engine rounds, bit for bit, and that a conversion holds nobody up.
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/kernels/wire_kernels.h"
#include "collectives/schedule/interpreter.h"
#include "tests/unit/engine/engine_ranks.h"

namespace lockstep {
namespace {

using namespace testing_support;
using schedule::Algorithm;
using schedule::Plan;

std::string bits_of(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// What all ranks must hold, by plain loops: a value that is sent becomes the rounded one on both sides, sums are made in fp32, and
// an exchange rounds its result once more.
std::vector<std::vector<float>> twin_of(const Plan& plan, DataType wire, int rank_count, size_t count, uint64_t purpose) {
    const auto on_wire = [wire](float value) {
        uint16_t bits = 0;
        wire_kernels::reference::pack(wire, &value, &bits, 1);
        return value;
    };
    std::vector<std::vector<float>> buffers;
    for (int rank = 0; rank < rank_count; ++rank) buffers.push_back(random_floats(rank, count, purpose));
    const auto programs = schedule::build_all(plan, rank_count, static_cast<int64_t>(count));
    schedule::interpret(programs, buffers, 1, on_wire);
    for (std::vector<float>& buffer : buffers) {
        for (float& value : buffer) value = plan.algorithm == Algorithm::exchange && rank_count > 1 ? on_wire(value) : value;
    }
    return buffers;
}

// Whatever ranks passed on was rounded, so the twin's ranks agree, and so must the engine's: with it and with each other.
void expect_bits_of_the_twin(const std::vector<Plan>& plans, DataType wire, int rank_count, size_t count,
                             const EngineOptions& options) {
    std::vector<std::vector<std::vector<float>>> expected;
    for (const Plan& plan : plans) expected.push_back(twin_of(plan, wire, rank_count, count, 9));
    const auto results = run_ranks(rank_count, {}, options, [&](ScheduleEngine& engine, Transport& transport, int rank) {
        std::string complaints;
        for (size_t index = 0; index < plans.size(); ++index) {
            std::vector<float> data = random_floats(rank, count, 9);
            run_one(engine, transport,
                    request_for(plans[index], {DataType::f32, wire}, data.data(), static_cast<int64_t>(count), index + 1));
            if (bits_of(data) != bits_of(expected[index][static_cast<size_t>(rank)]))
                complaints += fmt::format("rank {}: {} is not its twin\n", rank, describe(plans[index]));
            if (bits_of(data) != bits_of(expected[index][0]))
                complaints += fmt::format("rank {}: {} differs from rank 0\n", rank, describe(plans[index]));
        }
        return complaints;
    });
    EXPECT_THAT(results, testing::Each("")) << to_string(wire) << " on " << rank_count << " ranks";
}

// 8 ranks: three rounds of exchange(2), whose partial sums are passed on. 11 and 17 are folded: a rank passes the result on.
TEST(Wire, EngineRoundsWhereThePlainTwinRounds) {
    for (const DataType wire : {DataType::bf16, DataType::f16}) {
        for (const int rank_count : {1, 2, 3, 8}) expect_bits_of_the_twin(allreduce_plans(), wire, rank_count, 3001, kTight);
    }
    const std::vector<Plan> folded{{.algorithm = Algorithm::exchange, .radix = 2},
                                   {.algorithm = Algorithm::exchange, .radix = 4},
                                   {.algorithm = Algorithm::halving_doubling, .radix = 2}};
    for (const int rank_count : {11, 17}) expect_bits_of_the_twin(folded, DataType::bf16, rank_count, 700, kTight);
}

// Several pieces, the front of the message unasked and the rest on credit.
TEST(Wire, EngineRoundsWhereTheTwinRoundsInMessagesOfManyPieces) {
    const std::vector<Plan> plans{{.algorithm = Algorithm::exchange, .radix = 2}, {.algorithm = Algorithm::ring, .chunks = 1}};
    expect_bits_of_the_twin(plans, DataType::bf16, 3, 200'001, {});
}

TEST(Wire, TypesLeaveTheSameBitsOnAllRanksWithTheErrorOfTheType) {
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

TEST(Wire, HalfTheBytesTravelWithAWireTypeOfTwoBytes) {
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

// Takes nothing and brings nothing: shows what an engine has handed to it.
class ListingTransport final : public Transport {
public:
    std::string_view name() const override { return "listing"; }
    void post_send(Transfer& transfer) override { sends.push_back(&transfer); }
    void post_receive(Transfer&) override {}
    bool progress(int64_t) override { return false; }
    void note_progress() noexcept override {}
    void wake() noexcept override {}
    void abort(std::string_view) noexcept override {}

    size_t bytes_for(uint64_t number) const {  // data of an operation; signatures have the last tag
        size_t bytes = 0;
        for (const Transfer* send : sends) bytes += send->tag >> 16 == number && (send->tag & 0xFFFF) != 0xFFFF ? send->bytes : 0;
        return bytes;
    }

    std::vector<Transfer*> sends;
};

TEST(Wire, AConversionIsCutSoThatPiecesLeaveAndUrgentOperationsPass) {
    constexpr size_t kCount = 1'000'000, kSmallCount = 100;
    constexpr size_t kPieceBytes = 128 << 10;
    ListingTransport transport;
    const EngineOptions options{.eager_bytes = 4 << 20, .eager_window_bytes = 16 << 20};
    ScheduleEngine engine(transport, 0, everybody(2), options);
    const Plan plan{.algorithm = Algorithm::exchange};
    const ElementFormat format{DataType::f32, DataType::bf16};
    const float unrounded = 1.001F;
    std::vector<float> large(kCount, unrounded), small(kSmallCount, unrounded);

    engine.start(request_for(plan, format, large.data(), kCount, 1));
    EXPECT_EQ(transport.bytes_for(1), 0U);
    EXPECT_TRUE(engine.advance());
    EXPECT_EQ(transport.bytes_for(1), kPieceBytes) << "the first piece leaves before the rest is converted";
    EXPECT_NE(large.front(), unrounded);
    EXPECT_EQ(large.back(), unrounded);

    engine.start(request_for(plan, format, small.data(), kSmallCount, 2));
    EXPECT_TRUE(engine.advance());
    EXPECT_EQ(transport.bytes_for(2), 2 * kSmallCount) << "it does not wait for the large one";
    EXPECT_LE(transport.bytes_for(1), 2 * kPieceBytes);

    while (engine.advance()) {
    }
    EXPECT_EQ(transport.bytes_for(1), 2 * kCount);
    EXPECT_NE(large.back(), unrounded);
}

}  // namespace
}  // namespace lockstep
