// What must not grow, and what must never be kept.
#include <signal.h>

#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "core/files.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

struct Usage {
    int64_t resident_kb = 0, files = 0, threads = 0;
};

Usage usage_of(pid_t pid) {
    Usage usage;
    std::ifstream status(fmt::format("/proc/{}/status", pid));
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("VmRSS:")) usage.resident_kb = std::stoll(line.substr(6));
        if (line.starts_with("Threads:")) usage.threads = std::stoll(line.substr(8));
    }
    const fs::path files = fmt::format("/proc/{}/fd", pid);
    usage.files = std::distance(fs::directory_iterator(files), fs::directory_iterator());
    return usage;
}

class EnduranceTest : public JobTest {
protected:
    // Between two evaluations, where no thread of one is there.
    void until_epoch(Program& program, int64_t epoch) const {
        EXPECT_TRUE(eventually(120.0, [&] { return static_cast<int64_t>(metric("val.top1").size()) >= epoch; }))
            << program.output_so_far();
    }
    // Of several looks the least: a look may fall into an evaluation.
    static Usage least_usage_of(pid_t pid) {
        Usage least = usage_of(pid);
        for (int look = 0; look < 40; ++look) {
            usleep(3000);
            const Usage now = usage_of(pid);
            least = {std::min(least.resident_kb, now.resident_kb), std::min(least.files, now.files),
                     std::min(least.threads, now.threads)};
        }
        return least;
    }
};

TEST_F(EnduranceTest, SixtyEpochsWithEvaluationAndCheckpointTakeNoMoreMemoryFilesAndThreadsThanFive) {
    Program program(job(2, {"train.duration=100000ep", "lr.schedule=constant", "train.log_every=1000"}), test_environment());
    until_epoch(program, 5);
    const std::vector<pid_t> ranks = children_of(program.pid());
    ASSERT_EQ(ranks.size(), 2U);
    std::vector<Usage> before;
    for (const pid_t rank : ranks) before.push_back(least_usage_of(rank));
    until_epoch(program, 60);
    for (size_t rank = 0; rank < 2; ++rank) {
        const Usage after = least_usage_of(ranks[rank]);
        EXPECT_LT(after.resident_kb - before[rank].resident_kb, 2048) << "rank " << rank;
        EXPECT_LE(after.files, before[rank].files) << "rank " << rank;
        EXPECT_LE(after.threads, before[rank].threads) << "rank " << rank;
    }
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(20.0).exit_code, 138);
}

TEST_F(EnduranceTest, NaNOnOneRankStopsAllAtOneStepAndNoKeptCheckpointHoldsIt) {
    Program::Environment environment = test_environment();
    environment.emplace_back("LOCKSTEP_DRILL", "nan:1:6");
    const Outcome outcome = run(job(2, {"checkpoint.every=1it", "train.eval_every=never"}), 60.0, environment);
    EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
    EXPECT_TRUE(outcome.says("step 6: the loss of rank 1")) << outcome.output;
    EXPECT_TRUE(outcome.says("it began on rank 1: the parameter conv1.weight")) << outcome.output;
    int kept = 0;
    for (const auto& item : fs::directory_iterator(fs::path(run_dir()) / "checkpoints")) {
        ++kept;
        for (const auto& [name, values] : read_tensors(item.path() / "model.safetensors")) {
            for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << item.path() << " " << name;
        }
    }
    EXPECT_EQ(kept, 2);
}

}  // namespace
}  // namespace lockstep::test
