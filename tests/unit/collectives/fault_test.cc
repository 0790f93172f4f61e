// What happens when ranks die, stop, give up, disagree or never come; and that nothing is left behind.
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/communicator.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/error_of.h"
#include "tests/support/process_group.h"
#include "tests/support/shared_instant.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::error_of;
using testing_support::ProcessGroup;
using testing_support::RankOutcome;
using testing_support::SharedInstant;

constexpr size_t kCount = 300'000;

void sleep_ms(int64_t duration_ms) { std::this_thread::sleep_for(std::chrono::milliseconds(duration_ms)); }

// Keeps the communicator busy for ever: step 17, buckets 3, 4, 3, 4, ...
void run_buckets(Communicator& communicator, int count = 1'000'000) {
    Buffer buffer = communicator.gradient_pool().allocate(2 * kCount * sizeof(float));
    const std::span<float> data = buffer.f32();
    for (int round = 0; round < count; ++round) {
        const Work first = communicator.allreduce(data.first(kCount), {.what = "bucket", .step = 17, .bucket = 3});
        const Work second = communicator.allreduce(data.last(kCount), {.what = "bucket", .step = 17, .bucket = 4});
        first.wait();
        second.wait();
    }
}

class CommunicatorFault : public testing::TestWithParam<std::string> {
protected:
    CommunicatorOptions options() const {
        return {
            .backend = GetParam(), .timeout_ms = 20'000, .connect_timeout_ms = 20'000, .segment_bytes = 2 * kCount * sizeof(float)};
    }
    double notice_limit_s() const { return GetParam() == "native" ? 1.0 : 2.0; }
    std::vector<RankOutcome> run(int size, const std::function<std::string(Communicator&)>& body, CommunicatorOptions options) {
        return ProcessGroup{.size = size}.run([&](const World& world, Store& store) {
            const auto communicator = make_communicator(world, store, options);
            return body(*communicator);
        });
    }
    SharedInstant fault_;
};

TEST_P(CommunicatorFault, ARankKilledInMidOperationIsNamedByAllOthersAtOnce) {
    for (const int victim : {0, 2}) {
        const auto outcomes = run(
            3,
            [&](Communicator& communicator) {
                if (communicator.world().rank == victim) {
                    std::thread([&] {
                        sleep_ms(100);
                        fault_.set_now();
                        kill(getpid(), SIGKILL);
                    }).detach();
                }
                run_buckets(communicator);
                return std::string();
            },
            options());
        for (int rank = 0; rank < 3; ++rank) {
            const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
            if (rank == victim) {
                EXPECT_EQ(outcome.signal, SIGKILL);
                continue;
            }
            EXPECT_TRUE(outcome.threw);
            EXPECT_THAT(outcome.text, AllOf(HasSubstr(fmt::format("rank {} ", victim)), HasSubstr("died"), HasSubstr("bucket "),
                                            HasSubstr("of step 17"), HasSubstr("restart from the last checkpoint")));
            EXPECT_FALSE(calls_for_stacks(outcome.text)) << outcome.text;
            EXPECT_LT(fault_.seconds_until(outcome.end_ns), notice_limit_s());
        }
    }
}

TEST_P(CommunicatorFault, ARankKilledBetweenOperationsIsFoundAtTheNextWait) {
    const auto outcomes = run(
        2,
        [&](Communicator& communicator) {
            communicator.barrier({.what = "start"});
            if (communicator.world().rank == 1) {
                sleep_ms(50);
                kill(getpid(), SIGKILL);
            }
            sleep_ms(200);
            fault_.set_now();
            run_buckets(communicator);
            return std::string();
        },
        options());
    EXPECT_THAT(outcomes[0].text, AllOf(HasSubstr("rank 1 "), HasSubstr("died"), HasSubstr("bucket 3 of step 17")));
    EXPECT_LT(fault_.seconds_until(outcomes[0].end_ns), notice_limit_s());
}

// A rank that has more micro-batches than the others, or a slow processor, is not lost as long as it gets on.
TEST(NativeProgress, ARankThatComputesLongerThanTheTimeLimitIsNotLost) {
    const auto outcomes = testing_support::ProcessGroup{.size = 2}.run([](const World& world, Store& store) {
        CommunicatorOptions options{.backend = "native", .timeout_ms = 500};
        const auto communicator = make_communicator(world, store, options);
        communicator->barrier({.what = "start"});
        for (int part = 0; world.rank == 1 && part < 30; ++part) {
            sleep_ms(50);
            communicator->progress();
        }
        communicator->barrier({.what = "after a long computation"});
        return std::string("met");
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.text, "met");
}

TEST_P(CommunicatorFault, AStoppedRankIsAnErrorAfterTheTimeLimit) {
    CommunicatorOptions impatient = options();
    impatient.timeout_ms = 700;
    const auto outcomes = run(
        3,
        [&](Communicator& communicator) {
            communicator.barrier({.what = "start"});
            if (communicator.world().rank == 1) {
                fault_.set_now();
                kill(getpid(), SIGSTOP);
            }
            run_buckets(communicator);
            return std::string();
        },
        impatient);
    for (const int rank : {0, 2}) {
        const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 1 "), HasSubstr("no progress for 0."), HasSubstr("bucket 3 of step 17")));
        EXPECT_TRUE(calls_for_stacks(outcome.text)) << outcome.text;
        EXPECT_GT(fault_.seconds_until(outcome.end_ns), 0.6);
        EXPECT_LT(fault_.seconds_until(outcome.end_ns), 3.0);
    }
}

TEST_P(CommunicatorFault, AnAbortReachesEveryWaitWithItsReason) {
    const auto outcomes = run(
        3,
        [&](Communicator& communicator) {
            communicator.barrier({.what = "start"});
            if (communicator.world().rank == 2) {
                sleep_ms(100);
                fault_.set_now();
                communicator.abort("the loss is not finite");
            }
            run_buckets(communicator);
            return std::string();
        },
        options());
    for (const RankOutcome& outcome : outcomes) {
        EXPECT_THAT(outcome.text, HasSubstr("rank 2 gave up: the loss is not finite"));
        EXPECT_FALSE(calls_for_stacks(outcome.text)) << outcome.text;
        EXPECT_LT(fault_.seconds_until(outcome.end_ns), 0.8);
    }
}

TEST_P(CommunicatorFault, AbortEndsTheOwnWaitToo) {
    const auto outcomes = run(
        2,
        [&](Communicator& communicator) {
            if (communicator.world().rank == 1) {
                sleep_ms(600);
                return std::string();
            }
            std::thread aborter([&] {
                sleep_ms(50);
                fault_.set_now();
                communicator.abort("interrupted");
            });
            const std::string message = error_of([&] { run_buckets(communicator); });
            aborter.join();
            return message;
        },
        options());
    EXPECT_THAT(outcomes[0].text, HasSubstr("interrupted"));
    EXPECT_LT(fault_.seconds_until(outcomes[0].end_ns), 0.5);
}

TEST_P(CommunicatorFault, EveryCallAfterAFailureThrowsTheFirstError) {
    const auto outcomes = run(
        2,
        [&](Communicator& communicator) {
            if (communicator.world().rank == 1) return std::string();
            const std::string first = error_of([&] { run_buckets(communicator); });
            std::vector<float> data(10);
            const std::string again = error_of([&] { communicator.allreduce(data, {.what = "later"}).wait(); });
            const std::string barrier = error_of([&] { communicator.barrier({.what = "later"}); });
            return first == again && first == barrier ? first : fmt::format("{} / {} / {}", first, again, barrier);
        },
        options());
    EXPECT_THAT(outcomes[0].text,
                AllOf(HasSubstr("rank 1 "), HasSubstr("left the job"), HasSubstr("bucket"), Not(HasSubstr(" / "))));
}

TEST_P(CommunicatorFault, RanksThatDisagreeGetAnErrorNamingBothSides) {
    const auto sizes = run(
        2,
        [](Communicator& communicator) {
            std::vector<float> data(communicator.world().rank == 0 ? 100'000 : 100'016);
            communicator.allreduce(data, {.what = "bucket", .step = 5, .bucket = 1}).wait();
            return std::string();
        },
        options());
    for (const RankOutcome& outcome : sizes) {
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("disagree"), HasSubstr("rank 0 runs allreduce of 400000 bytes (f32)"),
                                        HasSubstr("rank 1 runs allreduce of 400064 bytes (f32)"), HasSubstr("bucket 1 of step 5")));
        EXPECT_TRUE(calls_for_stacks(outcome.text)) << outcome.text;
    }
    const auto kinds = run(
        2,
        [](Communicator& communicator) {
            std::vector<float> data(10);
            if (communicator.world().rank == 0) communicator.barrier({.what = "meeting"});
            communicator.allreduce(data, {.what = "bucket"}).wait();
            return std::string();
        },
        options());
    for (const RankOutcome& outcome : kinds) {
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("disagree"), HasSubstr("barrier"), HasSubstr("allreduce")));
        EXPECT_TRUE(calls_for_stacks(outcome.text)) << outcome.text;
    }
}

TEST_P(CommunicatorFault, RanksThatDisagreeOnTypeStepOrRootGetAnErrorNamingBothSides) {
    const auto types = run(
        2,
        [](Communicator& communicator) {
            std::vector<std::byte> data(40);
            const DataType type = communicator.world().rank == 0 ? DataType::f16 : DataType::bf16;
            communicator.allreduce(data, type, {.what = "bucket"}).wait();
            return std::string();
        },
        options());
    for (const RankOutcome& outcome : types)
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("disagree"), HasSubstr("(f16)"), HasSubstr("(bf16)")));
    const auto steps = run(
        3,
        [](Communicator& communicator) {
            std::vector<float> data(10);
            communicator.allreduce(data, {.what = "bucket", .step = 40 + communicator.world().rank / 2}).wait();
            return std::string();
        },
        options());
    for (const RankOutcome& outcome : steps)
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("disagree"), HasSubstr("of step 40"), HasSubstr("of step 41")));
    const auto roots = run(
        2,
        [](Communicator& communicator) {
            std::vector<std::byte> data(10);
            communicator.broadcast(data, communicator.world().rank, {.what = "weights"});
            return std::string();
        },
        options());
    for (const RankOutcome& outcome : roots)
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("disagree"), HasSubstr("from rank 0"), HasSubstr("from rank 1")));
}

TEST_P(CommunicatorFault, ARankThatIsStoppedForAWhileIsWaitedFor) {
    const auto outcomes = run(
        2,
        [&](Communicator& communicator) {
            communicator.barrier({.what = "start"});
            if (communicator.world().rank == 1) {
                const pid_t stopped = getpid();
                if (fork() == 0) {  // wakes the stopped one
                    sleep_ms(900);
                    kill(stopped, SIGCONT);
                    _exit(0);
                }
                kill(getpid(), SIGSTOP);
            }
            run_buckets(communicator, 5);
            return std::string("went on");
        },
        options());
    for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.text, "went on");
}

TEST_P(CommunicatorFault, LeavesNoFileDescriptorThreadOrSharedFile) {
    const auto outcomes = ProcessGroup{.size = 2}.run([&](const World& world, Store& store) {
        namespace fs = std::filesystem;
        const auto count = [](const char* folder) {
            return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
        };
        const auto use_one = [&] {
            const auto communicator = make_communicator(world, store, options());
            run_buckets(*communicator, 3);
        };
        use_one();  // whatever libraries keep for ever
        const auto descriptors = count("/proc/self/fd");
        const auto threads = count("/proc/self/task");
        for (int round = 0; round < 3; ++round) use_one();
        if (count("/proc/self/fd") != descriptors)
            return fmt::format("{} descriptors became {}", descriptors, count("/proc/self/fd"));
        if (count("/proc/self/task") != threads) return fmt::format("{} threads became {}", threads, count("/proc/self/task"));
        return std::string();
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.text, "");
}

TEST_P(CommunicatorFault, KilledJobsLeaveNothingInSharedMemory) {
    namespace fs = std::filesystem;
    const auto names = [] {
        std::vector<std::string> found;
        for (const char* folder : {"/dev/shm", "/tmp"}) {
            for (const auto& entry : fs::directory_iterator(folder)) {
                if (entry.path().filename().string().find("lockstep-segment") != std::string::npos) found.push_back(entry.path());
            }
        }
        return found;
    };
    run(
        2,
        [](Communicator& communicator) {
            run_buckets(communicator, 2);
            kill(getpid(), SIGKILL);
            return std::string();
        },
        options());
    EXPECT_THAT(names(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorFault, testing::Values("native", "tcp", "gloo"),
                         [](const auto& each) { return each.param; });

TEST(NativeCommunicator, AnAllreduceAllocatesNothingAfterWarmUp) {
    const auto outcomes = ProcessGroup{.size = 2}.run([](const World& world, Store& store) {
        const auto communicator =
            make_communicator(world, store, {.backend = "native", .segment_bytes = 2 * kCount * sizeof(float)});
        Buffer pool = communicator->gradient_pool().allocate(kCount * sizeof(float));
        std::vector<float> outside(kCount);
        const auto step = [&] {
            communicator->allreduce(pool.f32(), {.what = "bucket", .step = 1, .bucket = 0}).wait();
            communicator->allreduce(outside, {.what = "bucket", .step = 1, .bucket = 1}).wait();
            communicator->allreduce(std::span(outside).first(16), {.what = "control", .step = 1}).wait();
        };
        step();
        rusage before{};
        getrusage(RUSAGE_SELF, &before);
        const int64_t allocations = testing_support::heap_allocation_count();
        for (int round = 0; round < 50; ++round) step();
        rusage after{};
        getrusage(RUSAGE_SELF, &after);
        return fmt::format("{} allocations, {} page faults", testing_support::heap_allocation_count() - allocations,
                           after.ru_minflt - before.ru_minflt);
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.text, "0 allocations, 0 page faults");
}

TEST(NativeCommunicator, DataInTheSegmentOnOneRankOnlyIsADisagreement) {
    const auto outcomes = ProcessGroup{.size = 2}.run([](const World& world, Store& store) {
        const auto communicator = make_communicator(world, store, {.backend = "native", .segment_bytes = 8192});
        Buffer inside = communicator->gradient_pool().allocate(8000);
        std::vector<float> outside(2000);
        communicator->allreduce(world.rank == 0 ? inside.f32() : std::span(outside), {.what = "bucket"}).wait();
        return std::string();
    });
    for (const RankOutcome& outcome : outcomes)
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("disagree"), HasSubstr("at offset 0 of the segment")));
}

// Death is noticed within 100 ms; the bound allows for a busy machine.
TEST(NativeCommunicator, TheFlightRecordShowsWhatADeadRankDidLast) {
    const std::string path = testing::TempDir() + "flight_record_test.txt";
    std::filesystem::remove(path);
    SharedInstant fault;
    const auto outcomes = ProcessGroup{.size = 3}.run([&](const World& world, Store& store) {
        CommunicatorOptions options;
        options.backend = "native";
        options.segment_bytes = 2 * kCount * sizeof(float);
        options.flight_record_path = path;
        const auto communicator = make_communicator(world, store, options);
        run_buckets(*communicator, 3);
        communicator->barrier({.what = "last words", .step = 18});
        if (world.rank == 1) {
            fault.set_now();
            kill(getpid(), SIGKILL);
        }
        run_buckets(*communicator);
        return std::string();
    });
    for (const int rank : {0, 2}) {
        const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 1 "), HasSubstr("died"), HasSubstr(path), Not(HasSubstr("not written"))));
        EXPECT_LT(fault.seconds_until(outcome.end_ns), 0.4);
    }
    const std::string record = read_file(path);
    EXPECT_THAT(record, AllOf(HasSubstr("cause: rank 1 (pid "), HasSubstr("rank 2 (pid ")));
    // The dead rank's last line is the barrier, finished; the others have begun what it never came to.
    const size_t section = record.find("\nrank 1 (pid ");
    ASSERT_NE(section, std::string::npos);
    std::string lines = record.substr(section, record.find("\nrank 2 (pid ") - section);
    EXPECT_THAT(lines, AllOf(HasSubstr("the last 7 operations"), HasSubstr("barrier of 0 bytes for last words of step 18")));
    EXPECT_THAT(lines, Not(HasSubstr("waiting")));
    EXPECT_THAT(record.substr(0, section),
                testing::ContainsRegex("8 +waiting .*allreduce of 1200000 bytes .f32. for bucket 3 of step 17"));
}

TEST(NativeCommunicator, AFlightRecordThatCannotBeWrittenDoesNotHideTheFailure) {
    const auto outcomes = ProcessGroup{.size = 2}.run([&](const World& world, Store& store) {
        CommunicatorOptions options;
        options.backend = "native";
        options.flight_record_path = "/nonexistent/folder/record.txt";
        const auto communicator = make_communicator(world, store, options);
        if (world.rank == 0) communicator->barrier({.what = "meeting"});
        return std::string();
    });
    EXPECT_THAT(outcomes[0].text, AllOf(HasSubstr("rank 1 "), HasSubstr("left the job"), HasSubstr("not written")));
}

TEST(Settings, WhatABackendCannotHonourIsAnErrorAtOnce) {
    const auto store = make_memory_store();
    const World one_node{.rank = 0, .size = 2, .local_rank = 0, .local_size = 2};
    const auto refusal = [&](const CommunicatorOptions& options) {
        return error_of([&] { make_communicator(one_node, *store, options); });
    };
    EXPECT_THAT(refusal({.backend = "nccl"}), HasSubstr("`nccl` is unknown"));
    EXPECT_THAT(refusal({.backend = "native", .plan = {.algorithm = "ring"}}), HasSubstr("comm.algorithm=ring"));
    EXPECT_THAT(refusal({.backend = "gloo", .plan = {.algorithm = "exchange"}}), HasSubstr("comm.algorithm=exchange"));
    EXPECT_THAT(refusal({.backend = "auto", .wire = DataType::bf16}), HasSubstr("comm.wire=bf16"));
    EXPECT_THAT(refusal({.backend = "gloo", .wire = DataType::f16}), HasSubstr("comm.wire=fp16"));
    EXPECT_THAT(refusal({.backend = "tcp", .plan = {.algorithm = "hierarchical"}}), HasSubstr("shared memory"));
    EXPECT_THAT(refusal({.backend = "native", .plan = {.algorithm = "hierarchical"}, .shared_memory = false}),
                HasSubstr("shared memory"));
    EXPECT_THAT(refusal({.backend = "tcp", .plan = {.algorithm = "star"}}), HasSubstr("`star` is unknown"));
    EXPECT_THAT(refusal({.backend = "tcp", .plan = {.algorithm = "ring", .radix = 4}}), HasSubstr("comm.algorithm_radix=4"));
    EXPECT_THAT(refusal({.backend = "tcp", .plan = {.algorithm = "exchange", .chunks = 4}}), HasSubstr("comm.chunks=4"));
    EXPECT_THAT(refusal({.backend = "tcp", .plan = {.radix = 4}}), HasSubstr("comm.algorithm_radix=4"));
}

TEST(NativeCommunicator, ASegmentThatDoesNotFitIsAnErrorOnAllRanksWithTheBytesNeededAndFree) {
    const auto outcomes = ProcessGroup{.size = 2}.run([](const World& world, Store& store) {
        const rlimit limit{262'144, 262'144};  // 256 KiB
        setrlimit(RLIMIT_FSIZE, &limit);
        make_communicator(world, store, {.backend = "native", .segment_bytes = 1'000'000});
        return std::string();
    });
    for (const RankOutcome& outcome : outcomes) {
        EXPECT_TRUE(outcome.threw);
        EXPECT_THAT(outcome.text, testing::ContainsRegex("needs [0-9]+ bytes, 262144 are free"));
    }
    const auto huge = ProcessGroup{.size = 2}.run([](const World& world, Store& store) {
        make_communicator(world, store, {.backend = "native", .segment_bytes = size_t{1} << 46});
        return std::string();
    });
    for (const RankOutcome& outcome : huge) EXPECT_THAT(outcome.text, HasSubstr("are free"));
}

TEST(NativeCommunicator, APoolThatIsTooSmallNamesTheBytes) {
    const auto outcomes = ProcessGroup{.size = 2}.run([](const World& world, Store& store) {
        const auto communicator = make_communicator(world, store, {.backend = "native", .segment_bytes = 4096});
        return error_of([&] { communicator->gradient_pool().allocate(1'000'000); });
    });
    EXPECT_THAT(outcomes[0].text, HasSubstr("1000000 are asked for"));
}

TEST(GlooCommunicator, AMissingInterfaceIsAnErrorThatListsTheExistingOnes) {
    const auto outcomes = ProcessGroup{.size = 2}.run([](const World& world, Store& store) {
        make_communicator(world, store, {.backend = "gloo", .interface = "nosuch0"});
        return std::string();
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_THAT(outcome.text, AllOf(HasSubstr("`nosuch0`"), HasSubstr("lo")));
}

TEST(Meeting, NamesTheRanksThatDoNotCome) {
    const auto outcomes = ProcessGroup{.size = 4}.run([](const World& world, Store& store) {
        if (world.rank >= 2) return std::string();
        make_communicator(world, store, {.connect_timeout_ms = 400});
        return std::string();
    });
    for (const int rank : {0, 1})
        EXPECT_THAT(outcomes[static_cast<size_t>(rank)].text, HasSubstr("ranks 2, 3 of 4 did not appear"));
}

TEST(Meeting, ARankThatIsThereTwiceIsNamedOnAllRanksAtOnce) {
    const int64_t start_ns = now_ns();
    for (const RankOutcome& outcome : ProcessGroup{.size = 2}.run([](World world, Store&store) {
             world.rank = 1;
             make_communicator(world, store, {.connect_timeout_ms = 20'000});
             return std::string();
         })) {
        EXPECT_THAT(outcome.text, HasSubstr("rank 1 is there twice: pid "));
    }
    EXPECT_LT(now_ns() - start_ns, 5'000'000'000);
}

TEST(Meeting, AWorldSizeThatDiffersIsNamedOnAllRanksAtOnce) {
    const int64_t start_ns = now_ns();
    for (const RankOutcome& outcome : ProcessGroup{.size = 2}.run([](World world, Store&store) {
             if (world.rank == 1) world.size = 3;
             make_communicator(world, store, {.connect_timeout_ms = 20'000});
             return std::string();
         })) {
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("in a world of 2"), HasSubstr("in a world of 3")));
    }
    EXPECT_LT(now_ns() - start_ns, 5'000'000'000);
}

}  // namespace
}  // namespace lockstep
