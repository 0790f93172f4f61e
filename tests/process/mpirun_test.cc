// The same training under each MPI's mpirun, over that MPI.
#include <signal.h>

#include <fmt/format.h>

#include "core/clock.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

class MpirunTest : public JobTest, public ::testing::WithParamInterface<std::string> {
protected:
    void SetUp() override {
        JobTest::SetUp();
        const std::filesystem::path module =
            std::filesystem::path(lockstep_program()).parent_path() / "lib" / fmt::format("liblockstep_mpi_{}.so", GetParam());
        if (!std::filesystem::exists(module)) GTEST_SKIP() << GetParam() << " was not there when this was built";
        if (run({"which", "mpirun." + GetParam()}).exit_code != 0) GTEST_SKIP() << "mpirun." << GetParam() << " is not installed";
    }
    static std::vector<std::string> lockstep_on(int ranks, const std::vector<std::string>& arguments) {
        std::vector<std::string> command = {"mpirun." + GetParam(), "-np", std::to_string(ranks)};
        if (GetParam() == "openmpi") command.insert(command.end(), {"--allow-run-as-root", "--oversubscribe", "--bind-to", "none"});
        command.push_back(lockstep_program());
        command.insert(command.end(), arguments.begin(), arguments.end());
        return command;
    }
    std::vector<std::string> mpirun(int ranks, const std::vector<std::string>& overrides) const {
        std::vector<std::string> arguments{"train", tiny_config(), "run.dir=" + run_dir("mpi"), "comm.backend=mpi"};
        arguments.insert(arguments.end(), overrides.begin(), overrides.end());
        return lockstep_on(ranks, arguments);
    }
    // A job of three ranks that would run for hours, and trains; the processes of its ranks.
    std::unique_ptr<Program> training_job(std::vector<pid_t>& ranks) const {
        auto program = std::make_unique<Program>(mpirun(3, {"train.duration=1000000it", "comm.timeout=2s"}), test_environment());
        EXPECT_TRUE(program->wait_for_output("step 2/", 60.0)) << program->output_so_far();
        ranks = children_of(program->pid());
        if (ranks.size() == 1) ranks = children_of(ranks[0]);  // MPICH: behind its proxy
        return program;
    }
    static void expect_gone(const std::vector<pid_t>& pids) {
        for (const pid_t pid : pids)
            EXPECT_TRUE(eventually(5.0, [&] { return !process_exists(pid); })) << "process " << pid << " is left";
    }
};

TEST_P(MpirunTest, TrainsToTheBitsOfTheNativeBackend) {
    const Outcome outcome = run(mpirun(2, {"train.duration=3it"}), 60.0, test_environment());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(outcome.says("communication mpi")) << outcome.output;
    ASSERT_EQ(run_job(2, {"train.duration=3it"}, "own").exit_code, 0);
    ASSERT_FALSE(weights("own").empty());
    EXPECT_EQ(weights("mpi"), weights("own"));
}

TEST_P(MpirunTest, TuneMeasuresOverMpiAndKeepsTheTable) {
    const Outcome outcome =
        run(lockstep_on(2, {"tune", "--backend", "mpi", "--tuning", run_dir("tables")}), 120.0, test_environment());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(outcome.says("mpi, 2 ranks, from links and schedules measured by lockstep tune")) << outcome.output;
    EXPECT_TRUE(outcome.says("allreduce over 2 ranks")) << outcome.output;
    EXPECT_FALSE(std::filesystem::is_empty(run_dir("tables")));
}

TEST_P(MpirunTest, TuneWithNothingToChooseIsRefusedInOneLine) {
    const Outcome outcome = run(lockstep_on(2, {"tune"}), 60.0, test_environment());
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_EQ(count(outcome.output, "there is nothing to choose for native on 2 ranks"), 1) << outcome.output;
}

TEST_P(MpirunTest, AKilledRankEndsTheJobAtOnceAndLeavesNothing) {
    std::vector<pid_t> ranks;
    const auto program = training_job(ranks);
    ASSERT_EQ(ranks.size(), 3U);
    kill(ranks[1], SIGKILL);
    const Outcome outcome = program->wait(15.0);
    EXPECT_FALSE(outcome.timed_out) << outcome.output;
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_TRUE(outcome.says("signal 9")) << outcome.output;
    expect_gone(ranks);
}

TEST_P(MpirunTest, AStoppedRankIsNamedAndEndsTheJobWithTheCodeOfALostPeer) {
    std::vector<pid_t> ranks;
    const auto program = training_job(ranks);
    ASSERT_EQ(ranks.size(), 3U);
    kill(ranks[1], SIGSTOP);
    const int64_t stopped_ns = now_ns();
    const Outcome outcome = program->wait(30.0);
    EXPECT_LT(now_ns() - stopped_ns, 12'000'000'000);
    // MPICH's mpirun gives the signal with which it ended the stopped rank, when that was last.
    EXPECT_TRUE(outcome.exit_code == 140 || (GetParam() == "mpich" && outcome.exit_code == 9)) << outcome.output;
    EXPECT_TRUE(outcome.says("rank 1 has shown no progress for 2.")) << outcome.output;
    expect_gone(ranks);
}

INSTANTIATE_TEST_SUITE_P(Flavours, MpirunTest, ::testing::Values("openmpi", "mpich"), [](const auto& each) { return each.param; });

TEST_F(JobTest, TheBackendMpiWithoutMpirunIsRefusedWithTheReason) {
    const Outcome outcome = run_job(2, {"train.duration=3it", "comm.backend=mpi"});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_TRUE(outcome.says("start it with mpirun")) << outcome.output;
}

}  // namespace
}  // namespace lockstep::test
