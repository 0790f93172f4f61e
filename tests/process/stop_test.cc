// A signal to one rank, whatever the job is doing: all ranks stop at one step with a checkpoint and ask for a requeue.
#include <signal.h>

#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "core/random.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 3;

class AgreedStopTest : public JobTest {
protected:
    // Starts a job, lets `moment` find the time, signals one rank at random, and waits for the end.
    Outcome stop(const std::vector<std::string>& overrides, int signal, const std::function<void(Program&)>& moment) {
        std::vector<std::string> options = {"train.duration=100000ep", "train.eval_every=never", "checkpoint.every=never",
                                            "lr.schedule=constant"};
        options.insert(options.end(), overrides.begin(), overrides.end());
        Program program(job(kRanks, options), test_environment());
        moment(program);
        const std::vector<pid_t> ranks = children_of(program.pid());
        EXPECT_EQ(ranks.size(), static_cast<size_t>(kRanks)) << program.output_so_far();
        if (ranks.size() != kRanks) return program.wait(1.0);
        kill(ranks[random_.below(kRanks)], signal);
        const Outcome outcome = program.wait(20.0);
        for (const pid_t pid : ranks) EXPECT_FALSE(process_exists(pid));
        return outcome;
    }
    // The step of the checkpoint that a stopped job left; it is sound, and the only trace of a save.
    int64_t stopped_at(const Outcome& outcome) const {
        EXPECT_EQ(outcome.exit_code, 138) << outcome.output;
        EXPECT_TRUE(outcome.says("stopped on request after")) << outcome.output;
        const fs::path checkpoint = newest_checkpoint(run_dir());
        EXPECT_FALSE(checkpoint.empty()) << outcome.output;
        if (checkpoint.empty()) return -1;
        EXPECT_EQ(run({lockstep_program(), "checkpoint", "verify", run_dir()}).exit_code, 0);
        const auto manifest = nlohmann::json::parse(read_file(checkpoint / "manifest.json"));
        return manifest.at("step").get<int64_t>();
    }
    // The handlers are there: before that a signal ends a process as any other.
    static void until_signals_are_caught(Program& program) {
        EXPECT_TRUE(eventually(20.0, [&] {
            const std::vector<pid_t> ranks = children_of(program.pid());
            return ranks.size() == kRanks && std::ranges::all_of(ranks, catches_term);
        }));
    }
    void until_step(Program& program, int64_t step) const {
        EXPECT_TRUE(eventually(30.0, [&] {
            const auto lines = metric("train.loss");
            return !lines.empty() && lines.back().first >= step;
        })) << program.output_so_far();
    }

    RandomStream random_{static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed()), "victims"};

private:
    static bool catches_term(pid_t pid) {
        std::ifstream status(fmt::format("/proc/{}/status", pid));
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with("SigCgt:")) return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
        }
        return false;
    }
};

TEST_F(AgreedStopTest, WhileTheDataIsLookedAt) {
    // Enough names that looking at them takes a while.
    for (const char* name : {"red", "green", "blue"}) {
        const fs::path folder = folder_ / "many" / name;
        fs::create_directories(folder);
        const fs::path picture = folder / "0.jpg";
        fs::copy_file(sample_file("img/ref_rgb.jpg"), picture, fs::copy_options::skip_existing);
        for (int index = 1; index < 5000; ++index) fs::create_hard_link(picture, folder / fmt::format("{}.jpg", index));
    }
    const std::string path = "data.train.path=" + (folder_ / "many").string();
    EXPECT_LE(stopped_at(stop({path, "data.val.path="}, SIGTERM, until_signals_are_caught)), 1);
}

TEST_F(AgreedStopTest, InTheFirstStep) {
    const Outcome outcome = stop({"batch.global=2400"}, SIGTERM, [](Program& program) {
        EXPECT_TRUE(program.wait_for_output("validation:", 30.0)) << program.output_so_far();
    });
    EXPECT_LE(stopped_at(outcome), 2);
}

TEST_F(AgreedStopTest, InTrainingWithEachSignalAndTheRunGoesOnAsIfNothingHadBeen) {
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
        fs::remove_all(run_dir());
        const Outcome outcome = stop({}, signal, [&](Program& program) { until_step(program, 5); });
        const int64_t step = stopped_at(outcome);
        EXPECT_GT(step, 5);
        if (signal != SIGTERM) continue;
        const std::vector<std::string> to_end = {fmt::format("train.duration={}it", step + 4), "train.eval_every=never",
                                                 "lr.schedule=constant"};
        EXPECT_TRUE(run_job(kRanks, to_end).says("continuing from"));
        ASSERT_EQ(run_job(kRanks, to_end, "unbroken").exit_code, 0);
        EXPECT_EQ(weights(), weights("unbroken"));
    }
}

TEST_F(AgreedStopTest, InAnEvaluationWhichIsThenLeftToTheContinuedRun) {
    const std::vector<std::string> long_evaluation = {"train.eval_every=2it", "data.val.source=synthetic",
                                                      "data.val.synthetic_size=400000", "data.val.pipeline=[]"};
    const Outcome outcome = stop(long_evaluation, SIGTERM, [&](Program& program) {
        until_step(program, 1);
        std::this_thread::sleep_for(300ms);
    });
    EXPECT_EQ(stopped_at(outcome), 2);
    EXPECT_TRUE(metric("val.loss").empty());
    const Outcome continued = run_job(kRanks, {"train.duration=3it", "lr.schedule=constant", "train.eval_every=2it"});
    EXPECT_EQ(continued.exit_code, 0) << continued.output;
    ASSERT_EQ(metric("val.loss").size(), 2U);
    EXPECT_EQ(metric("val.loss").front().first, 1);
}

TEST_F(AgreedStopTest, WhileCheckpointsAreSavedOneAfterAnother) {
    for (const char* async : {"true", "false"}) {
        fs::remove_all(run_dir());
        const Outcome outcome =
            stop({"checkpoint.every=1it", fmt::format("checkpoint.async={}", async)}, SIGTERM, [&](Program& program) {
                until_step(program, 3);
                std::this_thread::sleep_for(std::chrono::microseconds(random_.below(20'000)));
            });
        EXPECT_GE(stopped_at(outcome), 4);
    }
}

}  // namespace
}  // namespace lockstep::test
