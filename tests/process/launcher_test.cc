// Ways to start a job, and every way to start it wrongly.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

class LauncherTest : public JobTest {
protected:
    static std::vector<std::string> ranks_of(int ranks, const std::string& shell_line) {
        return {lockstep_program(), "run", "--nproc-per-node", std::to_string(ranks), "--", "/bin/bash", "-c", shell_line};
    }
    static bool installed(const std::string& program) { return run({"which", program}, 10.0).exit_code == 0; }
    std::vector<std::string> train(const std::vector<std::string>& overrides, const std::string& name = "run") const {
        std::vector<std::string> command = {lockstep_program(), "train", tiny_config(), "run.dir=" + run_dir(name),
                                            "train.duration=3it"};
        command.insert(command.end(), overrides.begin(), overrides.end());
        return command;
    }
};

TEST_F(LauncherTest, TwoJobsAtOnceDoNotMeet) {
    Program first(job(2, {"train.duration=2ep"}, "first"), test_environment());
    Program second(job(2, {"train.duration=2ep"}, "second"), test_environment());
    EXPECT_EQ(first.wait(120.0).exit_code, 0);
    EXPECT_EQ(second.wait(120.0).exit_code, 0);
    EXPECT_EQ(weights("first"), weights("second"));
}

TEST_F(LauncherTest, DoctorClusterLooksOverTheMachinesOfAJob) {
    const auto doctor = [](const std::vector<std::string>& words) {
        std::vector<std::string> command{lockstep_program(), "run", "--nproc-per-node", "2", "--", "doctor", "cluster"};
        command.insert(command.end(), words.begin(), words.end());
        return run(command, 30.0, test_environment());
    };
    const Outcome machines = doctor({});
    EXPECT_EQ(machines.exit_code, 0) << machines.output;
    EXPECT_TRUE(machines.says("2 ranks on 1 node, started by lockstep")) << machines.output;
    EXPECT_TRUE(machines.says("ready: 0 errors")) << machines.output;
    const Outcome missing = doctor({tiny_config(), "data.train.path=/not/there.tar", "run.dir=" + run_dir()});
    EXPECT_EQ(missing.exit_code, 4) << missing.output;
    EXPECT_TRUE(missing.says("cannot read /not/there.tar: not there")) << missing.output;
    EXPECT_EQ(count(missing.output, "not ready: 1 error, 0 warnings"), 2) << "by rank 0, and by the launcher at the end\n"
                                                                          << missing.output;
    EXPECT_FALSE(std::filesystem::exists(run_dir())) << "a preflight leaves nothing behind";
}

TEST_F(LauncherTest, ATakenPortIsNamedWithinFiveSeconds) {
    const HeldPort held;
    const std::string port = std::to_string(held.port());
    const Outcome outcome = run({lockstep_program(), "run", "--nproc-per-node", "2", "--master-port", port, "--", "train",
                                 tiny_config(), "run.dir=" + run_dir()},
                                20.0, test_environment());
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_LT(outcome.seconds, 5.0);
    EXPECT_TRUE(outcome.says(port)) << outcome.output;
}

TEST_F(LauncherTest, AFailingRankEndsTheOthersAndIsNamedLast) {
    struct Case {
        std::string line;
        int exit_code;
        std::string last;
    };
    const std::string fail_on_1 = "if [ \"$LOCKSTEP_RANK\" = 1 ]; then echo about to fail >&2; {}; fi; sleep 60";
    for (const Case& item : {Case{"exit 7", 7, "7"}, Case{"kill -SEGV $$", 140, "SIGSEGV"}, Case{"kill -ABRT $$", 140, "SIGABRT"},
                             Case{"kill -KILL $$", 140, "SIGKILL"}}) {
        const Outcome outcome = run(ranks_of(3, fmt::format(fmt::runtime(fail_on_1), item.line)), 20.0);
        EXPECT_LT(outcome.seconds, 10.0) << item.line;
        EXPECT_EQ(outcome.exit_code, item.exit_code) << item.line << "\n" << outcome.output;
        const std::string tail = outcome.output.substr(outcome.output.size() - std::min<size_t>(outcome.output.size(), 400));
        EXPECT_NE(tail.find("rank 1"), std::string::npos) << outcome.output;
        EXPECT_NE(tail.find(item.last), std::string::npos) << outcome.output;
        EXPECT_NE(tail.find("about to fail"), std::string::npos) << outcome.output;
    }
}

TEST_F(LauncherTest, OutputOfRanksKeepsWholeLines) {
    const Outcome outcome =
        run(ranks_of(4, "for i in $(seq 200); do printf 'line %s of rank %s\\n' $i $LOCKSTEP_RANK; done"), 30.0);
    ASSERT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(count(outcome.output, "\n"), 800);
    for (const int rank : {0, 1, 2, 3}) EXPECT_TRUE(outcome.says(fmt::format("line 200 of rank {}\n", rank)));
}

TEST_F(LauncherTest, AConfigurationErrorIsOneLineWithinASecond) {
    const Outcome outcome = run_job(3, {"optim.momentun=0.9"});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_LT(outcome.seconds, 1.0);
    EXPECT_EQ(count(outcome.output, "optim.momentun"), 1) << outcome.output;
    EXPECT_TRUE(outcome.says("optim.momentum")) << "the nearest key is missing: " << outcome.output;
}

TEST_F(LauncherTest, AFailedRankSaysWhyInTheFileThatTorchrunNames) {
    Program::Environment environment = test_environment();
    const std::string file = (folder_ / "error.json").string();
    environment.emplace_back("TORCHELASTIC_ERROR_FILE", file);
    const Outcome outcome = run(train({"data.train.path=/nowhere"}), 20.0, environment);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    const auto message = nlohmann::json::parse(read_file(file)).at("message");
    EXPECT_NE(message.at("message").get<std::string>().find("/nowhere"), std::string::npos) << message;
    EXPECT_GT(std::stoll(message.at("extraInfo").at("timestamp").get<std::string>()), 1'000'000'000);
    EXPECT_TRUE(outcome.says(message.at("message").get<std::string>()));
}

TEST_F(LauncherTest, AMissingCheckpointIsOneLineBeforeAnyRankStarts) {
    const Outcome outcome = run({lockstep_program(), "run", "--nproc-per-node", "3", "--", "eval", "/nowhere/to/be/found"}, 10.0);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_EQ(count(outcome.output, "/nowhere/to/be/found"), 1) << outcome.output;
}

TEST_F(LauncherTest, ABatchThatCannotBeSharedNamesBothNumbers) {
    const Outcome outcome = run_job(4, {"batch.global=2", "batch.per_replica=1"});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_TRUE(outcome.says("2") && outcome.says("4")) << outcome.output;
    // 10 virtual workers on 4 ranks are dealt 3, 3, 2, 2: averaging stays exact.
    EXPECT_EQ(run_job(4, {"batch.global=10", "batch.per_replica=1", "train.duration=3it"}).exit_code, 0);
}

TEST_F(LauncherTest, MissingDataIsADataErrorThatNamesThePath) {
    const Outcome outcome = run_job(2, {"data.train.path=/nowhere/to/be/found"});
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_TRUE(outcome.says("/nowhere/to/be/found")) << outcome.output;
}

TEST_F(LauncherTest, WrongWorldsEndSoonAndNameTheVariable) {
    const auto end_of = [&](Program::Environment variables) {
        variables.emplace_back("MASTER_ADDR", "127.0.0.1");
        variables.emplace_back("MASTER_PORT", "29871");
        variables.emplace_back("LOCKSTEP_TEST_CASES", std::string(LOCKSTEP_SOURCE) + "/tests/cases");
        return run(train({}), 15.0, variables);
    };
    const Outcome too_high = end_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}});
    EXPECT_EQ(too_high.exit_code, 2) << too_high.output;
    EXPECT_TRUE(too_high.says("RANK")) << too_high.output;
    const Outcome word = end_of({{"RANK", "one"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}});
    EXPECT_EQ(word.exit_code, 2) << word.output;
    EXPECT_TRUE(word.says("RANK") && word.says("one")) << word.output;
    const Outcome missing = end_of({{"RANK", ""}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}});
    EXPECT_EQ(missing.exit_code, 2) << missing.output;
    EXPECT_TRUE(missing.says("RANK")) << missing.output;
}

TEST_F(LauncherTest, OneProcessMissingOrTwoWithOneRankEndWithinTheLimit) {
    const auto start = [&](const std::string& rank, const std::string& port) {
        return std::make_unique<Program>(
            train({"comm.start_timeout=8s"}),
            Program::Environment{{"RANK", rank},
                                 {"WORLD_SIZE", "3"},
                                 {"LOCAL_RANK", rank},
                                 {"LOCAL_WORLD_SIZE", "3"},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", port},
                                 {"LOCKSTEP_TEST_CASES", std::string(LOCKSTEP_SOURCE) + "/tests/cases"}});
    };
    const auto expect_failures = [](std::vector<std::unique_ptr<Program>> ranks, const std::string& expected) {
        std::string all;
        for (const auto& rank : ranks) {
            const Outcome outcome = rank->wait(15.0);
            EXPECT_FALSE(outcome.timed_out) << outcome.output;
            EXPECT_NE(outcome.exit_code, 0) << outcome.output;
            all += outcome.output;
        }
        EXPECT_NE(all.find(expected), std::string::npos) << all;
    };
    std::vector<std::unique_ptr<Program>> missing;
    const std::string first_port = free_port();
    for (const char* rank : {"0", "1"}) missing.push_back(start(rank, first_port));
    expect_failures(std::move(missing), "rank 2");
    std::vector<std::unique_ptr<Program>> doubled;
    const std::string second_port = free_port();
    for (const char* rank : {"0", "1", "1"}) doubled.push_back(start(rank, second_port));
    expect_failures(std::move(doubled), "rank 1");
}

TEST_F(LauncherTest, EveryLoopbackAddressIsAMeetingPlace) {
    for (const char* host : {"127.0.0.2", "[::1]"}) {
        const std::string endpoint = fmt::format("{}:{}", host, free_port());
        const std::string name = host[0] == '[' ? "six" : "four";
        const auto start = [&] {
            std::vector<std::string> command = job(1, {"train.duration=5it", "lr.warmup=0it"}, name);
            command.insert(command.begin() + 2, {"--nnodes", "2", "--rdzv-endpoint", endpoint});
            return std::make_unique<Program>(command, test_environment());
        };
        const auto first = start();
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // alone it waits
        const auto second = start();
        for (Program* each : {first.get(), second.get()}) {
            const Outcome outcome = each->wait(30.0);
            EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        }
    }
}

TEST_F(LauncherTest, UnequalWorldSizesEndAllRanksAtOnceAndAreNamed) {
    const std::string port = free_port();
    const auto start = [&](const std::string& rank, const std::string& size) {
        return std::make_unique<Program>(train({"comm.start_timeout=60s"}),  // which nobody waits out
                                         Program::Environment{{"RANK", rank},
                                                              {"WORLD_SIZE", size},
                                                              {"LOCAL_RANK", rank},
                                                              {"LOCAL_WORLD_SIZE", size},
                                                              {"MASTER_ADDR", "127.0.0.1"},
                                                              {"MASTER_PORT", port},
                                                              {"LOCKSTEP_TEST_CASES", sample_file("")}});
    };
    const auto two = start("0", "2");
    const auto three = start("1", "3");
    const Outcome first = two->wait(15.0);
    const Outcome second = three->wait(15.0);
    EXPECT_NE(first.exit_code, 0) << first.output;
    EXPECT_NE(second.exit_code, 0) << second.output;
    EXPECT_FALSE(first.timed_out || second.timed_out);
    EXPECT_TRUE(first.says("an earlier rank said")) << first.output;
    EXPECT_TRUE(second.says("an earlier rank said")) << second.output;
}

TEST_F(LauncherTest, OfTwoJobsWithOneExplicitPortTheSecondIsRefusedAndTheFirstGoesOn) {
    const std::string port = free_port();
    const auto with_port = [&](const std::string& name) {
        std::vector<std::string> command = job(2, {"train.duration=100000ep", "train.eval_every=never"}, name);
        command.insert(command.begin() + 2, {"--master-port", port});
        return command;
    };
    Program first(with_port("first"), test_environment());
    ASSERT_TRUE(first.wait_for_output("step 2/", 30.0)) << first.output_so_far();
    const Outcome second = run(with_port("second"), 10.0, test_environment());
    EXPECT_EQ(second.exit_code, 4) << second.output;
    EXPECT_LT(second.seconds, 5.0);
    EXPECT_TRUE(second.says(port)) << second.output;
    EXPECT_TRUE(process_exists(first.pid()));
    first.signal(SIGTERM);
    EXPECT_EQ(first.wait(10.0).exit_code, 138);
    Program third(with_port("third"), test_environment());  // the port is free again
    EXPECT_TRUE(third.wait_for_output("step 2/", 30.0)) << third.output_so_far();
    third.signal(SIGTERM);
    third.wait(10.0);
}

class ForeignLauncherTest : public LauncherTest {
protected:
    // The same program under another launcher ends with the bits of our own.
    void expect_same_run(std::vector<std::string> launcher, const std::string& name, const std::string& shown) const {
        const std::vector<std::string> program = train({}, name);
        launcher.insert(launcher.end(), program.begin(), program.end());
        const Outcome outcome = run(launcher, 60.0, test_environment());
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_TRUE(outcome.says("world: 2 ranks")) << outcome.output;
        EXPECT_TRUE(outcome.says(shown)) << outcome.output;
        ASSERT_EQ(run_job(2, {"train.duration=3it"}, "own").exit_code, 0);
        ASSERT_FALSE(weights("own").empty());
        EXPECT_EQ(weights(name), weights("own"));
    }
};

TEST_F(ForeignLauncherTest, MpirunStartsTheSameProgram) {
    if (!installed("mpirun")) GTEST_SKIP() << "mpirun is not installed";
    expect_same_run({"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"}, "mpi", "started by");
}

TEST_F(ForeignLauncherTest, TorchrunStartsTheSameProgram) {
    const std::string python = "/usr/bin/python3";  // the system's, whose packages torch belongs to
    if (run({python, "-c", "import torch.distributed.run"}, 60.0).exit_code != 0) GTEST_SKIP() << "torchrun is not installed";
    // Its defaults for redirects and tee fail under Python 3.11, whatever the program: hence both are given.
    expect_same_run({python, "-m", "torch.distributed.run", "--no_python", "--nproc_per_node", "2", "--master_port", free_port(),
                     "--redirects", "1", "--tee", "1", "--log_dir", (folder_ / "torchrun_logs").string()},
                    "torchrun", "started by torchrun");
}

class LogTest : public LauncherTest {
protected:
    static void expect_whole_lines(const std::string& output) {
        EXPECT_EQ(output.find('\r'), std::string::npos);
        EXPECT_EQ(output.find('\x1b'), std::string::npos);
        ASSERT_FALSE(output.empty());
        EXPECT_EQ(output.back(), '\n');
    }
};

TEST_F(LogTest, AWarningOfAllRanksAndProgressAreToldOnceAndAnErrorOfOneWithItsRank) {
    const std::vector<std::string> options = {"train.duration=2ep", "lr.warmup_from=1"};
    const Outcome good = run_job(4, options, "good");
    ASSERT_EQ(good.exit_code, 0) << good.output;
    expect_whole_lines(good.output);
    EXPECT_EQ(count(good.output, "warmup_from"), 1) << good.output;
    for (int step = 1; step <= 10; ++step) EXPECT_EQ(count(good.output, fmt::format(": step {}/10 ", step)), 1);

    // One picture that rank 2 meets in the second step.
    copy_case("sets/set101/train", "train");
    const std::string path = "data.train.path=" + (folder_ / "train").string();
    const Outcome order = run({lockstep_program(), "data", "order", tiny_config(), path, "--ranks", "4"}, 20.0, test_environment());
    const size_t row = order.output.find("\n0\t1\t2\t") + 1;
    ASSERT_NE(row, 0U) << order.output;
    const std::string line = order.output.substr(row, order.output.find('\n', row) - row);
    const std::string picture = line.substr(line.rfind('\t') + 1);
    write_file_atomically(picture, "no picture");
    std::vector<std::string> bad_options = options;
    bad_options.push_back(path);
    const Outcome bad = run_job(4, bad_options, "bad");
    EXPECT_EQ(bad.exit_code, 3) << bad.output;
    expect_whole_lines(bad.output);
    EXPECT_TRUE(bad.says("[rank 2] error: " + picture)) << bad.output;
    EXPECT_EQ(bad.last_line().find("[2]: [rank 2] error: " + picture), 0U) << "the first cause is the last line: " << bad.output;
    for (const char* warning : {"lr.warmup_from", "they slow each other down"})
        EXPECT_LE(count(bad.output, warning), 1) << bad.output;
}

TEST_F(LogTest, TheLastLineIsWholeEvenWhenTheLauncherIsKilled) {
    Program program(job(4, {"train.duration=100000ep", "train.eval_every=never"}), test_environment());
    ASSERT_TRUE(program.wait_for_output("step 9/", 30.0));
    program.signal(SIGKILL);
    const Outcome outcome = program.wait(5.0);
    expect_whole_lines(outcome.output);
}

TEST_F(LauncherTest, RanksShareTheAllowedCoresUnlessThreadsAreSet) {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    const int cores = CPU_COUNT(&allowed);
    const Outcome automatic = run_job(2, {"train.duration=3it", "train.threads=auto"}, "auto");
    ASSERT_EQ(automatic.exit_code, 0) << automatic.output;
    const size_t at = automatic.output.find("threads: ");
    ASSERT_NE(at, std::string::npos) << automatic.output;
    const int threads = std::stoi(automatic.output.substr(at + 9));
    EXPECT_LE(2 * threads, std::max(2, cores));
    EXPECT_TRUE(automatic.says(fmt::format("; {} of ", cores))) << automatic.output;
    const Outcome set = run_job(2, {"train.duration=3it", fmt::format("train.threads={}", cores)}, "set");
    ASSERT_EQ(set.exit_code, 0) << set.output;
    EXPECT_TRUE(set.says(fmt::format("threads: {} compute threads", cores))) << set.output;
    EXPECT_EQ(count(set.output, "warning:"), 1) << set.output;
}

TEST_F(LauncherTest, OneCoreForTwoRanksIsWarnedAbout) {
    std::vector<std::string> command = {"taskset", "-c", "0"};
    const std::vector<std::string> program = job(2, {"train.duration=3it", "train.threads=auto"});
    command.insert(command.end(), program.begin(), program.end());
    const Outcome outcome = run(command, 60.0, test_environment());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(outcome.says("warning")) << outcome.output;
    EXPECT_TRUE(outcome.says("core")) << outcome.output;
}

}  // namespace
}  // namespace lockstep::test
