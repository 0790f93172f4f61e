// Ranks that die, jobs that are ended from outside, runs that go on afterwards.
#include <signal.h>

#include <cmath>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/clock.h"
#include "core/files.h"
#include "core/random.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

using ::testing::ContainsRegex;

const std::vector<std::string> kLong = {"train.duration=100000ep", "train.eval_every=never", "checkpoint.every=50it"};

std::vector<std::string> operator+(std::vector<std::string> left, const std::vector<std::string>& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

double now_s() { return 1e-9 * static_cast<double>(now_ns()); }

class RunningJobTest : public JobTest {
protected:
    // Starts a job that would run for hours and waits until it trains.
    std::unique_ptr<Program> training_job(int ranks, const std::vector<std::string>& overrides = {},
                                          const std::string& name = "run") {
        auto program = std::make_unique<Program>(job(ranks, kLong + backend() + overrides, name), test_environment());
        EXPECT_TRUE(eventually(60.0, [&] { return metric_file_bytes(name) > 0; })) << program->output_so_far();
        return program;
    }
    virtual std::vector<std::string> backend() const { return {}; }
    uintmax_t metric_file_bytes(const std::string& name = "run") const {
        std::error_code missing;
        const auto bytes = fs::file_size(run_dir(name) + "/metrics.jsonl", missing);
        return missing ? 0 : bytes;
    }
    static void expect_gone(const std::vector<pid_t>& pids) {
        for (const pid_t pid : pids)
            EXPECT_TRUE(eventually(1.0, [&] { return !process_exists(pid); })) << "process " << pid << " is left";
    }
};

class FailureTest : public RunningJobTest, public ::testing::WithParamInterface<const char*> {
protected:
    std::vector<std::string> backend() const override { return {fmt::format("comm.backend={}", GetParam())}; }
};

TEST_P(FailureTest, KillingOneRankEndsAllWithinFiveSeconds) {
    for (const size_t victim : {0, 1}) {
        const std::string name = fmt::format("victim{}", victim);
        const auto program = training_job(3, {}, name);
        const std::vector<pid_t> ranks = children_of(program->pid());
        ASSERT_EQ(ranks.size(), 3U);
        kill(ranks[victim], SIGKILL);
        const double killed_s = now_s();
        const Outcome outcome = program->wait(30.0);
        EXPECT_LT(now_s() - killed_s, 5.0);
        EXPECT_EQ(outcome.exit_code, 140) << outcome.output;
        EXPECT_TRUE(outcome.says("SIGKILL")) << outcome.output;
        EXPECT_THAT(outcome.output, ContainsRegex(fmt::format("rank {} [^\n]*bucket [0-9]+ of step [0-9]", victim)));
        expect_gone(ranks);
    }
}

TEST_P(FailureTest, AStoppedRankEndsTheJobSoonAfterTheTimeLimit) {
    const auto program = training_job(3, {"comm.timeout=1s"});
    const std::vector<pid_t> ranks = children_of(program->pid());
    ASSERT_EQ(ranks.size(), 3U);
    kill(ranks[1], SIGSTOP);
    const double stopped_s = now_s();
    const Outcome outcome = program->wait(30.0);
    // The time limit, a second until all know, and the end of the processes. The stopped rank cannot end by itself; the job does
    // not wait out the launcher's patience for it.
    EXPECT_LT(now_s() - stopped_s, 3.0);
    EXPECT_EQ(outcome.exit_code, 140) << outcome.output;
    EXPECT_THAT(outcome.output, ContainsRegex("rank 1 [^\n]*no progress for [0-9.]+ s[^\n]*of step [0-9]"));
    expect_gone(ranks);
}

TEST_P(FailureTest, ARankThatIsStoppedForThreeSecondsIsWaitedFor) {
    const auto program = training_job(2, {"comm.timeout=8s"});
    const std::vector<pid_t> ranks = children_of(program->pid());
    ASSERT_EQ(ranks.size(), 2U);
    kill(ranks[1], SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    kill(ranks[1], SIGCONT);
    const auto bytes = metric_file_bytes();
    EXPECT_TRUE(eventually(20.0, [&] { return metric_file_bytes() > bytes; })) << "the job stands still";
    program->signal(SIGTERM);
    const Outcome outcome = program->wait(10.0);
    EXPECT_EQ(outcome.exit_code, 138) << outcome.output;
}

// As a scheduler's suspend, Ctrl-Z and a paused machine do it: for longer than any time limit of ranks and launcher.
TEST_P(FailureTest, AJobThatIsStoppedAsAWholeGoesOn) {
    std::vector<std::string> command = job(2, kLong + backend() + std::vector<std::string>{"comm.timeout=1s"});
    command.insert(command.begin() + 2, {"--rdzv-conf", "keep_alive_interval=0.3"});
    Program program(command, test_environment());
    ASSERT_TRUE(eventually(60.0, [&] { return metric_file_bytes() > 0; })) << program.output_so_far();
    std::vector<pid_t> all = children_of(program.pid());
    ASSERT_EQ(all.size(), 2U);
    all.push_back(program.pid());
    for (int time = 0; time < 2; ++time) {
        for (const pid_t pid : all) kill(pid, SIGSTOP);
        std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        const auto bytes = metric_file_bytes();
        for (const pid_t pid : all) kill(pid, SIGCONT);
        EXPECT_TRUE(eventually(20.0, [&] { return metric_file_bytes() > bytes; })) << program.output_so_far();
    }
    program.signal(SIGTERM);
    const Outcome outcome = program.wait(10.0);
    EXPECT_EQ(outcome.exit_code, 138) << outcome.output;
}

// Two nodes that lose each other: nothing is closed, nothing arrives any more.
TEST_P(FailureTest, ACutLinkEndsBothSidesSoonAfterTheTimeLimit) {
    const std::string netlab = LOCKSTEP_SOURCE "/scripts/netlab";
    const Program::Environment lab_environment = {
        {"LOCKSTEP_TEST_CASES", sample_file("")},
        {"LOCKSTEP_NETLAB_PROGRAM", (fs::path(lockstep_program()).parent_path() / "lockstep_netlab").string()}};
    const Outcome trial = run({netlab, "--", "true"}, 30.0, lab_environment);
    if (trial.exit_code == 4) GTEST_SKIP() << "network namespaces or TUN devices are not permitted here: " << trial.last_line();
    std::vector<std::string> command = {netlab,
                                        "--nodes",
                                        "2",
                                        "--delay-ms",
                                        "0.1",
                                        "--",
                                        lockstep_program(),
                                        "train",
                                        tiny_config(),
                                        "run.dir=" + run_dir(),
                                        "comm.timeout=2s",
                                        fmt::format("comm.backend={}", GetParam())};
    command.insert(command.end(), kLong.begin(), kLong.end());
    Program lab(command, lab_environment);
    ASSERT_TRUE(eventually(60.0, [&] { return metric_file_bytes() > 0; })) << lab.output_so_far();
    lab.signal(SIGUSR1);  // cuts the last node off
    const double cut_s = now_s();
    const Outcome outcome = lab.wait(30.0);
    EXPECT_LT(now_s() - cut_s, 4.0);
    EXPECT_EQ(outcome.exit_code, 140) << outcome.output;
    for (const char* lost : {"rank 0", "rank 1"}) {
        EXPECT_THAT(outcome.output, ContainsRegex(fmt::format("{} [^\n]*no progress for [0-9.]+ s[^\n]*of step [0-9]", lost)));
    }
}

INSTANTIATE_TEST_SUITE_P(Backends, FailureTest, ::testing::Values("native", "tcp", "gloo"),
                         [](const auto& each) { return std::string(each.param); });

class StopTest : public RunningJobTest {};

char state_of(pid_t pid) {
    const std::string status = read_file(fmt::format("/proc/{}/stat", pid));
    return status.at(status.rfind(')') + 2);
}

TEST_F(StopTest, CtrlZAtTheLauncherSuspendsItsRanksAndFgContinuesThem) {
    const auto program = training_job(2, {"comm.timeout=1s"});
    std::vector<pid_t> all = children_of(program->pid());
    ASSERT_EQ(all.size(), 2U);
    all.push_back(program->pid());
    program->signal(SIGTSTP);
    for (const pid_t pid : all) EXPECT_TRUE(eventually(5.0, [&] { return state_of(pid) == 'T'; })) << pid;
    const auto bytes = metric_file_bytes();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    EXPECT_EQ(metric_file_bytes(), bytes);
    program->signal(SIGCONT);
    EXPECT_TRUE(eventually(20.0, [&] { return metric_file_bytes() > bytes; })) << program->output_so_far();
    program->signal(SIGTERM);
    const Outcome outcome = program->wait(10.0);
    EXPECT_EQ(outcome.exit_code, 138) << outcome.output;
}

TEST_F(StopTest, TheFlightRecordOfAStoppedRankIsWritten) {
    const auto program = training_job(2, {"comm.timeout=1s"});
    const std::vector<pid_t> ranks = children_of(program->pid());
    ASSERT_EQ(ranks.size(), 2U);
    kill(ranks[1], SIGSTOP);
    const Outcome outcome = program->wait(30.0);
    EXPECT_TRUE(outcome.says("rank 1 (pid")) << outcome.output;
    EXPECT_TRUE(outcome.says(run_dir() + "/flight_record.txt")) << outcome.output;
    EXPECT_NE(read_file(run_dir() + "/flight_record.txt").find("for bucket 0 of step"), std::string::npos);
    EXPECT_TRUE(outcome.says(run_dir() + "/stacks")) << outcome.output;
    for (const char* name : {"/stacks/rank-0.txt", "/stacks/rank-1.txt"}) {  // the stopped one answers when it is continued
        EXPECT_THAT(read_file(run_dir() + name), ContainsRegex("thread [0-9]+ \\([^)]*, main\\)\n(  [^\n]*\n)*  [^\n]*lockstep"))
            << name;
    }
}

TEST_F(StopTest, StacksAreWrittenOnRequestAndTrainingGoesOn) {
    const auto program = training_job(2);
    const std::string file = run_dir() + "/stacks/rank-1.txt";
    // Asked again while it was met inside code that was generated at run time, behind which no stack can be followed.
    EXPECT_TRUE(eventually(20.0, [&] {
        program->signal(SIGUSR2);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return fs::exists(file) && read_file(file).find("TrainLoop") != std::string::npos;
    })) << (fs::exists(file) ? read_file(file) : "no file");
    const auto bytes = metric_file_bytes();
    EXPECT_TRUE(eventually(20.0, [&] { return metric_file_bytes() > bytes; })) << "the job stands still";
    program->signal(SIGTERM);
    EXPECT_EQ(program->wait(10.0).exit_code, 138);
}

TEST_F(StopTest, TermAndHangUpAndDoubleInterruptLeaveNothing) {
    struct Case {
        int signal;
        int times;
        std::vector<int> codes;
    };
    // Another job of the same user, which nothing below may touch.
    Program bystander(job(1, kLong, "bystander"), test_environment());
    for (const Case& item : {Case{SIGTERM, 1, {138}}, Case{SIGINT, 1, {130}}, Case{SIGINT, 2, {130}}, Case{SIGHUP, 1, {143}}}) {
        fs::remove_all(run_dir());
        const auto program = training_job(2);
        const std::vector<pid_t> ranks = children_of(program->pid());
        for (int time = 0; time < item.times; ++time) {
            program->signal(item.signal);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        const Outcome outcome = program->wait(10.0);
        EXPECT_FALSE(outcome.timed_out);
        EXPECT_NE(std::find(item.codes.begin(), item.codes.end(), outcome.exit_code), item.codes.end())
            << "signal " << item.signal << " gave " << outcome.exit_code << "\n"
            << outcome.output;
        expect_gone(ranks);
    }
    EXPECT_TRUE(process_exists(bystander.pid()));
    EXPECT_EQ(children_of(bystander.pid()).size(), 1U) << bystander.output_so_far();
    bystander.signal(SIGTERM);
    EXPECT_EQ(bystander.wait(10.0).exit_code, 138);
}

TEST_F(StopTest, AKilledLauncherTakesItsRanksAlong) {
    const auto program = training_job(2);
    const std::vector<pid_t> ranks = children_of(program->pid());
    ASSERT_EQ(ranks.size(), 2U);
    program->signal(SIGKILL);
    program->wait(5.0);
    for (const pid_t pid : ranks) EXPECT_TRUE(eventually(5.0, [&] { return !process_exists(pid); }));
}

TEST_F(StopTest, ASecondJobInTheSameFolderIsRefusedAndTheFirstGoesOn) {
    const auto program = training_job(2);
    const Outcome second = run_job(1);
    EXPECT_EQ(second.exit_code, 4) << second.output;
    EXPECT_NE(second.output.find("is in use: another job trains in this run.dir"), std::string::npos) << second.output;
    program->signal(SIGTERM);
    EXPECT_EQ(program->wait(10.0).exit_code, 138);
}

TEST_F(StopTest, UserSignalToOneRankCheckpointsAndAsksForARequeue) {
    const auto program = training_job(2, {"checkpoint.every=never"});
    const std::vector<pid_t> ranks = children_of(program->pid());
    ASSERT_EQ(ranks.size(), 2U);
    kill(ranks[1], SIGUSR1);
    const Outcome outcome = program->wait(15.0);
    EXPECT_EQ(outcome.exit_code, 138) << outcome.output;
    EXPECT_FALSE(newest_checkpoint(run_dir()).empty());
}

// The ranks of the node share out the update and hold one copy of the weights: the verdict is the same.
TEST_F(StopTest, KillingARankOfASharedOutUpdateEndsAllWithinFiveSecondsAndTheRunGoesOnWhole) {
    const auto program = training_job(3, {"optim.sharded=node", "comm.bucket=1KiB"});
    const std::vector<pid_t> ranks = children_of(program->pid());
    ASSERT_EQ(ranks.size(), 3U);
    ASSERT_TRUE(eventually(20.0, [&] { return !newest_checkpoint(run_dir()).empty(); })) << program->output_so_far();
    kill(ranks[1], SIGKILL);
    const double killed_s = now_s();
    const Outcome outcome = program->wait(30.0);
    EXPECT_LT(now_s() - killed_s, 5.0);
    EXPECT_EQ(outcome.exit_code, 140) << outcome.output;
    EXPECT_TRUE(outcome.says("SIGKILL")) << outcome.output;
    EXPECT_THAT(outcome.output, ContainsRegex("rank 1 [^\n]*(bucket [0-9]+|inspection|update) of step [0-9]"));
    expect_gone(ranks);
    const std::string step = newest_checkpoint(run_dir()).filename().string().substr(std::string("step-").size());
    const Outcome whole =
        run_job(2, {fmt::format("train.duration={}it", std::stoll(step) + 3), "train.eval_every=never", "optim.sharded=off"});
    EXPECT_EQ(whole.exit_code, 0) << whole.output;
    EXPECT_TRUE(whole.says("continuing from")) << whole.output;
}

class ResumeTest : public JobTest {};

TEST_F(ResumeTest, KilledAtRandomMomentsTheRunEndsWithTheSameWeights) {
    // Up to 30 kills of all ranks, at least 20 on a fast machine; each attempt continues from what the one before left. A
    // checkpoint every other step, so that kills hit saves too. What has its final name is whole: no attempt finds a damaged one.
    const std::vector<std::string> options = {"train.duration=2000it", "checkpoint.every=2it", "train.eval_every=500it",
                                              "train.log_every=100"};
    ASSERT_EQ(run_job(2, options, "unbroken").exit_code, 0);
    RandomStream random(11, "kills");
    int kills = 0;
    for (; kills < 30; ++kills) {
        Program program(job(2, options, "broken"), test_environment());
        const double delay_s = 0.15 + 0.25 * random.uniform_double();
        if (eventually(delay_s, [&] { return !process_exists(program.pid()); })) break;  // it finished first
        for (const pid_t rank : children_of(program.pid())) kill(rank, SIGKILL);
        const Outcome outcome = program.wait(20.0);
        EXPECT_FALSE(outcome.says("warning:")) << outcome.output;
    }
    const Outcome last = run_job(2, options, "broken");
    ASSERT_EQ(last.exit_code, 0) << last.output;
    EXPECT_GE(kills, 20) << "the run ended before it could be killed often enough";
    ASSERT_FALSE(weights("unbroken").empty());
    EXPECT_EQ(weights("unbroken"), weights("broken"));
    for (const auto& entry : fs::directory_iterator(run_dir("broken") + "/checkpoints")) {
        EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << "leftover " << entry.path();
    }
}

TEST_F(ResumeTest, StepsThatArePassedOverAreToldOnceAndCountedAtEachEvaluation) {
    Program::Environment environment = test_environment();
    environment.emplace_back("LOCKSTEP_DRILL", "nan:1:2");  // of 15 steps, 5 an epoch; it stays
    Program program(
        job(2, {"train.stop_on_nan=false", "train.duration=3ep", "checkpoint.every=never", "train.check_replicas=never"}),
        environment);
    const Outcome outcome = program.wait(60.0);
    EXPECT_EQ(count(outcome.output, "it began on rank 1"), 1) << outcome.output;
    EXPECT_EQ(count(outcome.output, "warning: step 2: the loss of rank 1 is NaN"), 1) << outcome.output;
    EXPECT_TRUE(outcome.says("warning: 3 steps passed over so far, up to step 5")) << outcome.output;
    EXPECT_TRUE(outcome.says("warning: 13 steps passed over so far, up to step 15")) << outcome.output;
    EXPECT_EQ(count(outcome.output, "passed over"), 4) << outcome.output;
    const std::string lines = read_file(run_dir() + "/metrics.jsonl");
    EXPECT_EQ(count(lines, "\"train.loss\":null"), 13) << "no loss is known, and it is not 0: " << lines;
    EXPECT_EQ(count(lines, "\"grad_norm\":null"), 13) << lines;
}

TEST_F(ResumeTest, ADivergingRunStopsEverywhereAndNamesStepAndTensor) {
    const Outcome outcome = run_job(2, {"lr.base=10000", "lr.warmup=0it", "checkpoint.every=1it"});
    EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
    EXPECT_TRUE(outcome.says("step")) << outcome.output;
}

}  // namespace
}  // namespace lockstep::test
