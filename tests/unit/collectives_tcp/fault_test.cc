// Real processes over TCP: killed, stopped, short of open files; and nothing left behind.
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "core/error.h"
#include "tests/support/process_group.h"
#include "tests/support/shared_instant.h"
#include "tests/unit/collectives_tcp/ranks.h"

namespace lockstep {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing_support::SharedInstant;

void sleep_ms(int64_t duration_ms) { std::this_thread::sleep_for(std::chrono::milliseconds(duration_ms)); }

// Keeps all ranks busy with each other for ever.
[[noreturn]] void exchange_for_ever(const World& world, Transport& transport) {
    std::vector<std::vector<std::byte>> bytes(2 * static_cast<size_t>(world.size), std::vector<std::byte>(700'000));
    std::vector<Transfer> transfers(bytes.size());
    for (uint64_t round = 0;; ++round) {
        for (int peer = 0; peer < world.size; ++peer) {
            if (peer == world.rank) continue;
            const auto index = 2 * static_cast<size_t>(peer);
            transfers[index] = transfer(peer, round, bytes[index]);
            transfers[index + 1] = transfer(peer, round, bytes[index + 1]);
            transport.post_receive(transfers[index]);
            transport.post_send(transfers[index + 1]);
        }
        complete(transport, transfers);
    }
}

std::vector<RankOutcome> run(int size, const TcpOptions& options,
                             const std::function<std::string(const World&, Transport&)>& body) {
    return ProcessGroup{.size = size}.run([&](const World& world, Store& store) {
        const auto transport = make_tcp_transport(world, store, "test", options);
        return body(world, *transport);
    });
}

TEST(TcpFault, ARankKilledInMidExchangeIsNamedByAllOthersAtOnce) {
    SharedInstant fault;
    for (const int victim : {0, 2}) {
        const auto outcomes = run(3, quick_options(), [&](const World& world, Transport& transport) -> std::string {
            if (world.rank == victim) {
                std::thread([&] {
                    sleep_ms(100);
                    fault.set_now();
                    kill(getpid(), SIGKILL);
                }).detach();
            }
            exchange_for_ever(world, transport);
        });
        for (int rank = 0; rank < 3; ++rank) {
            const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
            if (rank == victim) {
                EXPECT_EQ(outcome.signal, SIGKILL);
                continue;
            }
            EXPECT_TRUE(outcome.threw);
            EXPECT_THAT(outcome.text, HasSubstr(fmt::format("rank {} died or lost its connection", victim)));
            EXPECT_LT(fault.seconds_until(outcome.end_ns), 1.0);
        }
    }
}

TEST(TcpFault, ARankKilledWhileNobodyWaitsForItIsNoticedAtOnce) {
    SharedInstant fault;
    const auto outcomes = run(2, quick_options(), [&](const World& world, Transport& transport) -> std::string {
        exchange_a_byte(transport, 1 - world.rank, 1);
        if (world.rank == 1) {
            fault.set_now();
            kill(getpid(), SIGKILL);
        }
        stay(transport, 5000);
        return "nothing noticed";
    });
    EXPECT_THAT(outcomes[0].text, HasSubstr("rank 1 died or lost its connection"));
    EXPECT_LT(fault.seconds_until(outcomes[0].end_ns), 1.0);
}

TEST(TcpFault, ARankKilledBeforeItConnectsIsNamed) {
    TcpOptions options = quick_options();
    options.connect_timeout_ms = 600;
    const auto outcomes = ProcessGroup{.size = 3}.run([&](const World& world, Store& store) -> std::string {
        if (world.rank == 1) {
            // It has told its address, and then it is gone.
            store.set("test/tcp/1", std::string("+\1\0\0\0\1\0\0\0\x9\0\0\0"
                                                "127.0.0.1",
                                                22));
            kill(getpid(), SIGKILL);
        }
        make_tcp_transport(world, store, "test", options);
        return "met";
    });
    for (const size_t rank : {0, 2}) {
        EXPECT_THAT(outcomes[rank].text,
                    AnyOf(HasSubstr("is not connected to rank 1"), HasSubstr("rank 0 died"),
                          HasSubstr("is not connected to ranks 0, 1"), HasSubstr("rank 2 is not connected to rank 1")));
    }
}

TEST(TcpFault, AStoppedRankIsNamedWithinTheTimeLimit) {
    SharedInstant fault;
    TcpOptions options = quick_options();
    options.timeout_ms = 1000;
    const auto outcomes = run(3, options, [&](const World& world, Transport& transport) -> std::string {
        if (world.rank == 1) {
            std::thread([&] {
                sleep_ms(100);
                fault.set_now();
                kill(getpid(), SIGSTOP);
            }).detach();
        }
        exchange_for_ever(world, transport);
    });
    for (const size_t rank : {0, 2}) {
        EXPECT_THAT(outcomes[rank].text,
                    AllOf(HasSubstr("rank 1 made no progress for"), HasSubstr("nothing comes from its process")));
        EXPECT_GT(fault.seconds_until(outcomes[rank].end_ns), 0.9);
        EXPECT_LT(fault.seconds_until(outcomes[rank].end_ns), 2.5);
    }
}

TEST(TcpFault, ARankStoppedForLessThanTheTimeLimitIsWaitedFor) {
    TcpOptions options = quick_options();
    options.timeout_ms = 3000;
    const auto outcomes = run(2, options, [&](const World& world, Transport& transport) -> std::string {
        const pid_t victim = getpid();
        if (world.rank == 1 && fork() == 0) {
            sleep_ms(50);
            kill(victim, SIGSTOP);
            sleep_ms(600);
            kill(victim, SIGCONT);
            _exit(0);
        }
        for (uint64_t round = 0; round < 100; ++round) {
            exchange_a_byte(transport, 1 - world.rank, round);
            sleep_ms(2);
        }
        return "met";
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.text, "met");
}

TEST(TcpFault, APeerThatClosesInTheMiddleOfAMessageIsNamed) {
    const auto outcomes = run(2, quick_options(), [&](const World& world, Transport& transport) -> std::string {
        std::vector<std::byte> bytes(20'000'000);
        Transfer large = transfer(1 - world.rank, 1, bytes);
        if (world.rank == 1) {
            transport.post_send(large);
            while (large.moved == 0) transport.progress(1'000'000);
            _exit(0);
        }
        transport.post_receive(large);
        complete(transport, {&large});
        return "met";
    });
    EXPECT_THAT(outcomes[0].text, HasSubstr("rank 1 died or lost its connection"));
}

// They work, or one error gives the open files needed and allowed; nothing in between, however often.
TEST(TcpFault, WithFewOpenFilesRanksMeetOrAreToldHowManyAreNeeded) {
    for (const rlim_t allowed : {20, 64}) {
        for (int attempt = 0; attempt < 3; ++attempt) {
            const auto outcomes = ProcessGroup{.size = 8}.run([&](const World& world, Store& store) -> std::string {
                const rlimit limit{.rlim_cur = allowed, .rlim_max = allowed};
                check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "the limit can be lowered");
                const auto transport = make_tcp_transport(world, store, "test", quick_options());
                exchange_a_byte(*transport, world.rank ^ 1, 1);
                return "met";
            });
            const bool met = outcomes[0].text == "met";
            for (const RankOutcome& outcome : outcomes) {
                if (met) {
                    EXPECT_EQ(outcome.text, "met");
                } else {
                    EXPECT_THAT(outcome.text, AllOf(HasSubstr("needs "), HasSubstr(fmt::format("may have {} ", allowed))));
                }
            }
            EXPECT_TRUE(met || allowed == 20) << outcomes[0].text;
        }
    }
}

TEST(TcpFault, ThirtyTwoRanksMeetUnderTheDefaultLimits) {
    const auto outcomes = ProcessGroup{.size = 32}.run([&](const World& world, Store& store) -> std::string {
        TcpOptions patient = quick_options();
        patient.connect_timeout_ms = 20'000;
        const auto transport = make_tcp_transport(world, store, "test", patient);
        for (int distance = 1; distance < 32; distance *= 2) exchange_a_byte(*transport, world.rank ^ distance, 1);
        return "met";
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.text, "met");
}

TEST(TcpFault, TheSoftLimitOfOpenFilesIsRaisedWhenThatSuffices) {
    const auto outcomes = ProcessGroup{.size = 8}.run([&](const World& world, Store& store) -> std::string {
        const rlimit limit{.rlim_cur = 12, .rlim_max = 100};
        check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "the limit can be lowered");
        const auto transport = make_tcp_transport(world, store, "test", quick_options());
        exchange_a_byte(*transport, world.rank ^ 1, 1);
        return "met";
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.text, "met");
}

size_t open_files() {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

TEST(TcpFault, NothingIsLeftBehind) {
    const auto outcomes = ProcessGroup{.size = 2}.run([&](const World& world, Store& store) -> std::string {
        const size_t before = open_files();
        for (int round = 0; round < 3; ++round) {
            const auto transport = make_tcp_transport(world, store, fmt::format("test/{}", round), quick_options());
            exchange_a_byte(*transport, 1 - world.rank, 1);
        }
        const size_t threads = static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
        return fmt::format("{} files, {} threads more", open_files() - before, threads - 1);
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.text, "0 files, 0 threads more");
}

}  // namespace
}  // namespace lockstep
