// What the engine sends unasked, what it keeps in flight, and who comes first.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/engine_ranks.h"

namespace lockstep {
namespace {

using namespace testing_support;
using schedule::Algorithm;
using schedule::Plan;

// Until nothing has moved for a good while: more of what may be sent would have been.
void send_all_that_may_go(ScheduleEngine& engine, Transport& transport) {
    for (int quiet = 0; quiet < 30;) quiet = engine.advance() || transport.progress(1'000'000) ? 0 : quiet + 1;
}

// A receiver that comes late reads all the time and posts nothing. It must not be given more than it has room for.
TEST(Flow, ALateReceiverKeepsNoMoreThanTheBound) {
    constexpr int64_t kCount = 30'000;
    for (const DataType wire : {DataType::f32, DataType::bf16}) {
        for (const int operations : {1, 40}) {
            MemoryNetwork network(2, {.unexpected_bytes = 64 << 20});
            std::atomic<bool> sent{false};
            const auto results = run_ranks(
                2, {}, kTight,
                [&](ScheduleEngine& engine, Transport& transport, int rank) -> std::string {
                    std::vector<std::vector<float>> data(static_cast<size_t>(operations), whole_numbers(rank, kCount));
                    while (rank == 1 && !sent) transport.progress(1'000'000);
                    std::vector<int> handles;
                    uint64_t sequence = 0;
                    for (std::vector<float>& each : data) {
                        if (rank == 0 && !engine.can_start() && !sent) {
                            send_all_that_may_go(engine, transport);
                            sent = true;
                        }
                        drive(engine, transport, [&] { return engine.can_start(); });
                        handles.push_back(engine.start(request_for({.algorithm = Algorithm::exchange}, {DataType::f32, wire},
                                                                   each.data(), kCount, ++sequence)));
                    }
                    if (rank == 0 && !sent) {
                        send_all_that_may_go(engine, transport);
                        sent = true;
                    }
                    for (const int handle : handles) {
                        drive(engine, transport, [&] { return engine.finished(handle); });
                        engine.release(handle);
                    }
                    for (const std::vector<float>& each : data) {
                        // bf16: the numbers and their sums are whole and small.
                        if (each != sum_of_whole_numbers(2, kCount)) return "wrong sums";
                    }
                    return "";
                },
                &network);
            EXPECT_THAT(results, testing::Each(""));
            EXPECT_GE(network.most_unexpected_bytes(), kTight.eager_bytes) << "the front of a message is sent unasked";
            EXPECT_LE(network.most_unexpected_bytes(), ScheduleEngine::unexpected_bytes_bound(kTight)) << operations;
            if (operations == 1) {
                constexpr size_t kCreditBytes = 1;
                EXPECT_LE(network.most_unexpected_bytes(), kTight.eager_bytes + sizeof(ScheduleSignature) + kCreditBytes);
            }
        }
    }
}

// What has ended makes room: several operations are in flight again and again, not only at the beginning.
TEST(Flow, FinishedOperationsMakeRoomForOthers) {
    const auto results = run_ranks(2, {}, kTight, [&](ScheduleEngine& engine, Transport& transport, int rank) -> std::string {
        uint64_t sequence = 0;
        for (int round = 0; round < 5; ++round) {
            std::vector<std::vector<float>> data(2, whole_numbers(rank, 400));  // 1600 bytes each: two fit the window
            std::vector<int> handles;
            for (std::vector<float>& each : data) {
                if (!engine.can_start()) return fmt::format("round {}: no room for operation {}", round, sequence + 1);
                handles.push_back(
                    engine.start(request_for({.algorithm = Algorithm::exchange}, kFloats, each.data(), 400, ++sequence)));
            }
            for (const int handle : handles) {
                drive(engine, transport, [&] { return engine.finished(handle); });
                engine.release(handle);
            }
        }
        return engine.idle() ? "" : "not idle";
    });
    EXPECT_THAT(results, testing::Each(""));
}

TEST(Flow, ASmallOperationIsMoreUrgentThanALargeOneAndSignaturesAreMoreUrgentThanBoth) {
    class UrgencyTransport final : public Transport {
    public:
        std::string_view name() const override { return "urgency"; }
        void post_send(Transfer& transfer) override { urgencies.emplace_back(transfer.bytes, transfer.urgency); }
        void post_receive(Transfer&) override {}
        bool progress(int64_t) override { return false; }
        void note_progress() noexcept override {}
        void wake() noexcept override {}
        void abort(std::string_view) noexcept override {}
        int32_t of(size_t bytes) const {
            for (const auto& [size, urgency] : urgencies) {
                if (size == bytes) return urgency;
            }
            return -1;
        }
        std::vector<std::pair<size_t, int32_t>> urgencies;
    };
    UrgencyTransport transport;
    ScheduleEngine engine(transport, 0, everybody(2), {});
    std::vector<float> data(50'000);
    engine.start(request_for({.algorithm = Algorithm::exchange}, kFloats, data.data(), 50'000, 1));
    engine.start(request_for({.algorithm = Algorithm::exchange}, kFloats, data.data(), 30, 2));
    EXPECT_GT(transport.of(30 * sizeof(float)), transport.of(50'000 * sizeof(float)));
    EXPECT_GT(transport.of(50'000 * sizeof(float)), 0);
    EXPECT_GT(transport.of(sizeof(ScheduleSignature)), transport.of(30 * sizeof(float)));
}

// The peer of an exchange between two ranks with equal data, one message at a time, the last posted first: the pieces of a message
// come in the wrong order, as they may over MPI. It may keep the engine's signatures to itself.
class ContraryEcho final : public Transport {
public:
    std::string_view name() const override { return "contrary"; }
    void post_send(Transfer& transfer) override { sends_.push_back(&transfer); }
    void post_receive(Transfer& transfer) override { receives_.push_back(&transfer); }
    bool progress(int64_t patience_ns) override {
        if (patience_ns == 0) return false;  // the engine first does all it can
        for (size_t index = receives_.size(); index-- > 0;) {
            Transfer& receive = *receives_[index];
            Transfer* const send = partner_of(index);
            if (send == nullptr || receive.complete()) continue;
            std::memcpy(receive.data, send->data, send->bytes);
            receive.moved = receive.bytes;
            return true;
        }
        bool moved = false;
        for (Transfer* send : sends_) {
            if (send->complete() || (holds_signatures && send->bytes == sizeof(ScheduleSignature))) continue;
            send->moved = send->bytes;
            moved = true;
        }
        return moved;
    }
    void note_progress() noexcept override {}
    void wake() noexcept override {}
    void abort(std::string_view) noexcept override {}

    bool holds_signatures = false;

private:
    // The n-th receive of a tag meets the n-th send.
    Transfer* partner_of(size_t index) const {
        const auto has_tag = [tag = receives_[index]->tag](const Transfer* each) { return each->tag == tag; };
        auto ordinal = std::count_if(receives_.begin(), receives_.begin() + static_cast<int64_t>(index), has_tag);
        for (Transfer* send : sends_) {
            if (has_tag(send) && ordinal-- == 0) return send;
        }
        return nullptr;
    }

    std::vector<Transfer*> sends_, receives_;
};

TEST(Flow, PiecesThatComeInTheWrongOrderAreSummedOnlyBehindTheFirst) {
    constexpr int64_t kCount = 300'000;
    for (const DataType wire : {DataType::f32, DataType::bf16}) {
        ContraryEcho transport;
        ScheduleEngine engine(transport, 0, everybody(2), {.eager_bytes = 64 << 10});
        std::vector<float> data = whole_numbers(0, kCount);
        run_one(engine, transport, request_for({.algorithm = Algorithm::exchange}, {DataType::f32, wire}, data.data(), kCount, 1));
        std::vector<float> expected = whole_numbers(0, kCount);
        for (float& value : expected) value *= 2;
        EXPECT_TRUE(data == expected) << to_string(wire);
    }
}

// Its memory is the transport's until then.
TEST(Flow, AnOperationIsNotOverBeforeItsSignatureHasLeft) {
    ContraryEcho transport;
    transport.holds_signatures = true;
    ScheduleEngine engine(transport, 0, everybody(2), {});
    std::vector<float> data = whole_numbers(0, 1000);
    const int handle = engine.start(request_for({.algorithm = Algorithm::exchange}, kFloats, data.data(), 1000, 1));
    for (int look = 0; look < 100; ++look) {
        transport.progress(1);
        engine.advance();
    }
    EXPECT_FALSE(engine.finished(handle));
    transport.holds_signatures = false;
    drive(engine, transport, [&] { return engine.finished(handle); });
    engine.release(handle);
}

}  // namespace
}  // namespace lockstep
