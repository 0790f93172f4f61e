// Ranks that die, jobs that are ended from outside, runs that go on afterwards.
#include <signal.h>

#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/files.h"
#include "core/random.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

const std::vector<std::string> kLong = {"train.duration=100000ep", "train.eval_every=never", "checkpoint.every=50it"};

std::vector<std::string> operator+(std::vector<std::string> left, const std::vector<std::string>& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

class FailureTest : public JobTest, public ::testing::WithParamInterface<const char*> {
protected:
    // Starts a job that would run for hours and waits until it trains.
    std::unique_ptr<Program> training_job(int ranks, const std::vector<std::string>& overrides = {}) {
        auto program = std::make_unique<Program>(job(ranks, kLong + overrides), test_environment());
        EXPECT_TRUE(eventually(60.0, [&] { return !metric_file_is_empty(); })) << program->output_so_far();
        return program;
    }
    bool metric_file_is_empty() const {
        std::error_code missing;
        const auto bytes = fs::file_size(run_dir() + "/metrics.jsonl", missing);
        return missing || bytes == 0;
    }
    static void expect_gone(const std::vector<pid_t>& pids) {
        for (const pid_t pid : pids)
            EXPECT_TRUE(eventually(1.0, [&] { return !process_exists(pid); })) << "process " << pid << " is left";
    }
};

TEST_P(FailureTest, KillingOneRankEndsAllWithinFiveSeconds) {
    const auto program = training_job(3, {fmt::format("comm.backend={}", GetParam())});
    const std::vector<pid_t> ranks = children_of(program->pid());
    ASSERT_EQ(ranks.size(), 3U);
    kill(ranks[1], SIGKILL);
    const double killed_s = 1e-9 * static_cast<double>(now_ns());
    const Outcome outcome = program->wait(30.0);
    EXPECT_LT(1e-9 * static_cast<double>(now_ns()) - killed_s, 5.0);
    EXPECT_EQ(outcome.exit_code, 140) << outcome.output;
    EXPECT_TRUE(outcome.says("rank 1")) << outcome.output;
    EXPECT_TRUE(outcome.says("bucket")) << outcome.output;
    EXPECT_TRUE(outcome.says("step")) << outcome.output;
    EXPECT_TRUE(outcome.says("SIGKILL")) << outcome.output;
    expect_gone(ranks);
}

INSTANTIATE_TEST_SUITE_P(Backends, FailureTest, ::testing::Values("native", "tcp", "gloo"));

class StopTest : public FailureTest {};

// The stopped rank cannot end by itself; the job does not wait out the launcher's patience for it.
TEST_F(StopTest, AStoppedRankEndsTheJobSoonAfterTheTimeLimit) {
    const auto program = training_job(2, {"comm.timeout=1s"});
    const std::vector<pid_t> ranks = children_of(program->pid());
    ASSERT_EQ(ranks.size(), 2U);
    kill(ranks[1], SIGSTOP);
    const double stopped_s = 1e-9 * static_cast<double>(now_ns());
    const Outcome outcome = program->wait(30.0);
    EXPECT_LT(1e-9 * static_cast<double>(now_ns()) - stopped_s, 3.0);
    EXPECT_EQ(outcome.exit_code, 140) << outcome.output;
    EXPECT_TRUE(outcome.says("rank 1 (pid")) << outcome.output;
    EXPECT_TRUE(outcome.says("no progress")) << outcome.output;
    EXPECT_TRUE(outcome.says(run_dir() + "/flight_record.txt")) << outcome.output;
    EXPECT_NE(read_file(run_dir() + "/flight_record.txt").find("for bucket 0 of step"), std::string::npos);
    expect_gone(ranks);
}

TEST_F(StopTest, TermAndHangUpAndDoubleInterruptLeaveNothing) {
    struct Case {
        int signal;
        int times;
        std::vector<int> codes;
    };
    // Another job of the same user, which nothing below may touch.
    Program bystander(job(1, kLong, "bystander"), test_environment());
    for (const Case& item : {Case{SIGTERM, 1, {143}}, Case{SIGINT, 1, {130}}, Case{SIGINT, 2, {130}}, Case{SIGHUP, 1, {143}}}) {
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
    EXPECT_EQ(bystander.wait(10.0).exit_code, 143);
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
    EXPECT_EQ(program->wait(10.0).exit_code, 143);
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

class ResumeTest : public JobTest {};

TEST_F(ResumeTest, KilledAtRandomMomentsTheRunEndsWithTheSameWeights) {
    // 30 kills of all ranks; each attempt continues from what the one before left. A checkpoint every other step, so that kills hit
    // saves too. What has its final name is whole: no attempt finds a damaged one.
    const std::vector<std::string> options = {"train.duration=1500it", "checkpoint.every=2it", "train.eval_every=500it",
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
    EXPECT_EQ(kills, 30) << "the run ended before it could be killed often enough";
    ASSERT_FALSE(weights("unbroken").empty());
    EXPECT_EQ(weights("unbroken"), weights("broken"));
    for (const auto& entry : fs::directory_iterator(run_dir("broken") + "/checkpoints")) {
        EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << "leftover " << entry.path();
    }
}

TEST_F(ResumeTest, ADivergingRunStopsEverywhereAndNamesStepAndTensor) {
    const Outcome outcome = run_job(2, {"lr.base=10000", "lr.warmup=0it", "checkpoint.every=1it"});
    EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
    EXPECT_TRUE(outcome.says("step")) << outcome.output;
}

}  // namespace
}  // namespace lockstep::test
