// The communicator around the engine, with threads as ranks over a network in memory: who drives, what a failure leaves behind.
#include "collectives/transport_communicator.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "tests/support/memory_transport.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::MemoryNetwork;

class TransportCommunicatorTest : public testing::TestWithParam<bool> {
protected:
    using Body = std::function<std::string(Communicator&)>;

    // What `body` returns, or the error it met, by rank.
    std::vector<std::string> run(int rank_count, const Body& body, const CommunicatorOptions& options = {}) {
        network_ = std::make_unique<MemoryNetwork>(rank_count, testing_support::MemoryNetworkOptions{});
        std::vector<std::string> results(static_cast<size_t>(rank_count));
        std::vector<std::thread> threads;
        for (int rank = 0; rank < rank_count; ++rank) {
            threads.emplace_back([&, rank] {
                const World world{.rank = rank, .size = rank_count, .local_rank = rank, .local_size = rank_count};
                try {
                    TransportCommunicator communicator(world, options,
                                                       {.name = "memory",
                                                        .make_transport = [&] { return network_->transport(rank); },
                                                        .one_thread = GetParam(),
                                                        .make_node_memory = {}});
                    results[static_cast<size_t>(rank)] = body(communicator);
                } catch (const Error& error) {
                    results[static_cast<size_t>(rank)] = error.what();
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        return results;
    }

    std::unique_ptr<MemoryNetwork> network_;
};

void sleep_us(uint64_t duration_us) { std::this_thread::sleep_for(std::chrono::microseconds(duration_us)); }

TEST_P(TransportCommunicatorTest, SumsWhileTheCallersComputeAtTheirOwnPace) {
    const auto results = run(3, [](Communicator& communicator) {
        const int rank = communicator.world().rank;
        RandomStream pace(9, "pace", static_cast<uint64_t>(rank));
        for (int step = 0; step < 12; ++step) {
            std::vector<std::vector<float>> buckets;
            for (const size_t count : {20'000, 3000, 9, 0, 500}) buckets.emplace_back(count, static_cast<float>(rank + step));
            std::vector<Work> works;
            for (size_t index = 0; index < buckets.size(); ++index) {
                sleep_us(pace.below(300));
                communicator.progress();
                works.push_back(communicator.allreduce(buckets[index],
                                                       {.what = "bucket", .step = step, .bucket = static_cast<int32_t>(index)}));
            }
            while (step % 3 == 0 && !works.back().test()) sleep_us(50);
            for (const Work& work : works) work.wait();
            const auto expected = static_cast<float>(3 + 3 * step);
            for (const std::vector<float>& bucket : buckets) {
                for (const float value : bucket) {
                    if (value != expected) return fmt::format("step {}: {} instead of {}", step, value, expected);
                }
            }
        }
        communicator.barrier({.what = "end"});
        const CommunicatorUsage usage = communicator.take_usage();
        return std::string(usage.cpu_s > 0.0 && usage.sent_bytes > 0 ? "" : "nothing was counted");
    });
    EXPECT_THAT(results, testing::Each(""));
}

TEST_P(TransportCommunicatorTest, AnAbortReachesAllWithItsReasonAndEveryLaterCallToo) {
    const auto results = run(3, [](Communicator& communicator) {
        std::vector<float> data(1000);
        if (communicator.world().rank == 1) {
            sleep_us(20'000);
            communicator.abort("the loss is not finite");
        }
        std::string first;
        try {
            for (;;) communicator.allreduce(data, {.what = "bucket", .step = 4, .bucket = 2}).wait();
        } catch (const CommError& error) {
            first = error.what();
        }
        try {
            communicator.barrier({.what = "after"});
        } catch (const CommError& error) {
            return first;
        }
        return std::string("no error after the first");
    });
    EXPECT_THAT(results, testing::Each(HasSubstr("rank 1 gave up: the loss is not finite")));
}

TEST_P(TransportCommunicatorTest, ADeadRankIsNamedWithTheOperation) {
    const auto results = run(2, [&](Communicator& communicator) {
        communicator.barrier({.what = "start"});
        if (communicator.world().rank == 1) {
            sleep_us(30'000);  // rank 0 has left the barrier
            network_->kill(1);
            return std::string();
        }
        std::vector<float> data(1000);
        for (;;) communicator.allreduce(data, {.what = "bucket", .step = 17, .bucket = 3}).wait();
    });
    EXPECT_THAT(results[0], AllOf(HasSubstr("rank 1 died"), HasSubstr("bucket 3 of step 17"), HasSubstr("restart")));
}

TEST_P(TransportCommunicatorTest, DifferentSizesAreAnErrorThatNamesBoth) {
    const auto results = run(3, [](Communicator& communicator) {
        std::vector<float> data(communicator.world().rank == 2 ? 1001 : 1000);
        communicator.allreduce(data, {.what = "bucket", .step = 1, .bucket = 0}).wait();
        return std::string("no error");
    });
    // Whichever is seen first: the signatures, or a message of another length.
    EXPECT_THAT(results, testing::Each(AllOf(testing::AnyOf(HasSubstr("ranks disagree"), HasSubstr("which sends")),
                                             HasSubstr("4000 bytes"), HasSubstr("4004"), HasSubstr("rank 2"))));
}

TEST_P(TransportCommunicatorTest, AFailureToConnectIsThrownByTheConstructor) {
    const World world{.rank = 0, .size = 2, .local_rank = 0, .local_size = 2};
    const auto make = [&] {
        TransportCommunicator(world, {},
                              {.name = "memory",
                               .make_transport = []() -> std::unique_ptr<Transport> { throw CommError("rank 1 did not come"); },
                               .one_thread = GetParam(),
                               .make_node_memory = {}});
    };
    EXPECT_THROW(make(), CommError);
}

// Around another: shows whether somebody sleeps in it, and sleeps until something comes or somebody calls, whatever its patience.
class SleepyTransport final : public Transport {
public:
    explicit SleepyTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
    std::string_view name() const override { return "sleepy"; }
    void post_send(Transfer& transfer) override { inner_->post_send(transfer); }
    void post_receive(Transfer& transfer) override { inner_->post_receive(transfer); }
    bool progress(int64_t patience_ns) override {
        if (patience_ns == 0) return inner_->progress(0);
        const int64_t end_ns = now_ns() + 20'000'000'000;
        ++sleeps;
        asleep = true;
        bool moved = false;
        while (!moved && !woken_.exchange(false) && now_ns() < end_ns) moved = inner_->progress(200'000);
        overslept = overslept || now_ns() >= end_ns;
        asleep = false;
        return moved;
    }
    void note_progress() noexcept override { inner_->note_progress(); }
    void wake() noexcept override { woken_ = true; }
    void abort(std::string_view reason) noexcept override { inner_->abort(reason); }

    static inline std::atomic<bool> asleep{false}, overslept{false};
    static inline std::atomic<int> sleeps{0};

private:
    std::unique_ptr<Transport> inner_;
    std::atomic<bool> woken_{false};
};

// The thread sleeps because a peer has not come; what is started now, and waited for now, must not wait for that peer.
TEST_P(TransportCommunicatorTest, WhoSleepsInTheTransportIsWokenByWhatIsStarted) {
    SleepyTransport::asleep = SleepyTransport::overslept = false;
    MemoryNetwork network(2, {});
    std::atomic<bool> rank_0_went_on{false};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            const World world{.rank = rank, .size = 2, .local_rank = rank, .local_size = 2};
            CommunicatorOptions options;
            options.plan.probing = Probing::never;
            TransportCommunicator communicator(world, options,
                                               {.name = "memory",
                                                .make_transport = [&]() -> std::unique_ptr<Transport> {
                                                    if (rank == 1) return network.transport(1);
                                                    return std::make_unique<SleepyTransport>(network.transport(0));
                                                },
                                                .one_thread = GetParam(),
                                                .make_node_memory = {}});
            std::vector<float> early(3000, 1.0F), late(10, 1.0F);
            if (rank == 0) {
                const Work first = communicator.allreduce(early, {.what = "first"});
                // Its messages fit the link: once they are there, nothing but a call ends the sleep.
                int sleeps_before = -1;
                while (SleepyTransport::sleeps != sleeps_before || !SleepyTransport::asleep) {
                    sleeps_before = SleepyTransport::sleeps;
                    sleep_us(100'000);
                }
                const Work second = communicator.allreduce(late, {.what = "second"});
                // Woken, it looks for what was issued and goes to sleep again.
                const int64_t end_ns = now_ns() + 10'000'000'000;
                while (SleepyTransport::sleeps == sleeps_before && now_ns() < end_ns) sleep_us(100);
                EXPECT_GT(SleepyTransport::sleeps, sleeps_before);
                rank_0_went_on = true;
                first.wait();
                second.wait();
            } else {
                while (!rank_0_went_on) sleep_us(100);
                communicator.allreduce(early, {.what = "first"});
                communicator.allreduce(late, {.what = "second"}).wait();
            }
            communicator.barrier({.what = "end"});
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(SleepyTransport::overslept);
}

INSTANTIATE_TEST_SUITE_P(Drivers, TransportCommunicatorTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "own_thread_only" : "caller_too"; });

}  // namespace
}  // namespace lockstep
