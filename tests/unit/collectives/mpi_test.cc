// The backend `mpi` under real mpiruns: the contract suite and the failures that MPI's own launcher leaves to us, in processes that
// are started by it. This program is launched by itself: the tests of MpiRank run in the ranks only.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/communicator.h"
#include "collectives/mpi/mpi_connection.h"
#include "collectives/mpi/mpi_loader.h"
#include "core/clock.h"
#include "core/error.h"
#include "net/store.h"
#include "tests/support/error_of.h"
#include "tests/support/process_group.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::error_of;
using testing_support::ProcessGroup;
using testing_support::RankOutcome;
using testing_support::surrounding_mpi;

constexpr int kRanks = 3;

int times_said(const std::string& output, const std::string& text) {
    int count = 0;
    for (size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) ++count;
    return count;
}

class Mpirun : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        if (!surrounding_mpi().empty()) GTEST_SKIP() << "runs outside of mpirun";
        const std::string module = fmt::format("{}/liblockstep_mpi_{}.so", LOCKSTEP_MODULE_FOLDER, GetParam());
        if (!std::filesystem::exists(module)) GTEST_SKIP() << GetParam() << " was not there when this was built";
        if (test::run({"which", "mpirun." + GetParam()}).exit_code != 0)
            GTEST_SKIP() << "mpirun." << GetParam() << " is not installed";
    }

    // Runs the tests that `filter` names in three ranks; all of them must pass in each.
    void expect_passes(const std::string& filter, int test_count) {
        const auto server = StoreServer::start({.bind_host = "127.0.0.1", .port = 0, .job_id = "test"});
        std::vector<std::string> command = {"mpirun." + GetParam(), "-np", std::to_string(kRanks)};
        if (GetParam() == "openmpi") command.insert(command.end(), {"--allow-run-as-root", "--oversubscribe", "--bind-to", "none"});
        command.insert(command.end(),
                       {std::filesystem::read_symlink("/proc/self/exe").string(), "--gtest_filter=" + filter, "--gtest_color=no"});
        const test::Outcome outcome = test::run(command, 100.0,
                                                {{"LOCKSTEP_TEST_MPI", GetParam()},
                                                 {"LOCKSTEP_TEST_STORE_PORT", std::to_string(server->port())},
                                                 {"LOCKSTEP_MODULES", LOCKSTEP_MODULE_FOLDER}});
        EXPECT_FALSE(outcome.timed_out);
        EXPECT_EQ(times_said(outcome.output, "[       OK ] "), kRanks * test_count) << outcome.output;
        EXPECT_EQ(times_said(outcome.output, "[  FAILED  ]"), 0) << outcome.output;
        outcome_ = outcome;
    }
    test::Outcome outcome_;
};

TEST_P(Mpirun, HoldsTheContractAndEndsInOrder) {
    expect_passes(fmt::format("*CommunicatorContract.*/{}_{}", GetParam(), kRanks), 13);
    EXPECT_EQ(outcome_.exit_code, 0) << outcome_.output;
}

TEST_P(Mpirun, FailuresAreErrorsThatNameTheRank) { expect_passes("MpiRank.*", 6); }

INSTANTIATE_TEST_SUITE_P(Flavours, Mpirun, testing::Values("openmpi", "mpich"), [](const auto& each) { return each.param; });

void sleep_ms(int64_t duration_ms) { std::this_thread::sleep_for(std::chrono::milliseconds(duration_ms)); }

class MpiRank : public testing::Test {
protected:
    using Body = std::function<std::string(Communicator&)>;

    void SetUp() override {
        if (surrounding_mpi().empty()) GTEST_SKIP() << "runs in the ranks that Mpirun starts";
    }
    // A rank that leaves without ending MPI makes mpirun end the others: all have said by then how it went.
    static void TearDownTestSuite() {
        if (!surrounding_mpi().empty()) ProcessGroup{.size = kRanks}.run([](const World&, Store&) { return std::string(); });
    }
    static std::vector<RankOutcome> run(const Body& body, int64_t timeout_ms = 20'000) {
        const CommunicatorOptions options{.backend = "mpi", .timeout_ms = timeout_ms, .connect_timeout_ms = 20'000};
        return ProcessGroup{.size = kRanks}.run([&](const World& world, Store& store) {
            const auto communicator = make_communicator(world, store, options);
            return body(*communicator);
        });
    }
    // Step 17, bucket 3, for ever.
    static std::string run_buckets(Communicator& communicator) {
        std::vector<float> data(300'000);
        while (true) communicator.allreduce(data, {.what = "bucket", .step = 17, .bucket = 3}).wait();
    }
};

TEST_F(MpiRank, ARankThatComputesLongerThanTheTimeLimitIsNotLost) {
    for (const RankOutcome& outcome : run(
             [](Communicator& communicator) {
                 for (int part = 0; communicator.world().rank == 1 && part < 40; ++part) {
                     sleep_ms(50);
                     communicator.progress();
                 }
                 communicator.barrier({.what = "after a long computation"});
                 return std::string("met");
             },
             700)) {
        EXPECT_EQ(outcome.text, "met");
    }
}

TEST_F(MpiRank, ASilentRankIsAnErrorAfterTheTimeLimit) {
    const auto outcomes = run(
        [](Communicator& communicator) {
            communicator.barrier({.what = "start"});
            if (communicator.world().rank != 1) return run_buckets(communicator);
            sleep_ms(2500);
            return std::string("was silent");
        },
        700);
    for (const int rank : {0, 2}) {
        EXPECT_THAT(outcomes[static_cast<size_t>(rank)].text,
                    AllOf(HasSubstr("rank 1 has shown no progress for "), HasSubstr("bucket 3 of step 17")));
    }
}

TEST_F(MpiRank, AnAbortReachesEveryWaitWithItsReason) {
    for (const RankOutcome& outcome : run([](Communicator& communicator) {
             communicator.barrier({.what = "start"});
             if (communicator.world().rank == 2) {
                 sleep_ms(100);
                 communicator.abort("the loss is not finite");
             }
             return run_buckets(communicator);
         })) {
        EXPECT_THAT(outcome.text, HasSubstr("rank 2 gave up: the loss is not finite"));
        EXPECT_FALSE(calls_for_stacks(outcome.text)) << outcome.text;
    }
}

TEST_F(MpiRank, ARankThatHasLeftIsNamed) {
    const auto outcomes = run([](Communicator& communicator) {
        if (communicator.world().rank == 1) return std::string();
        return run_buckets(communicator);
    });
    for (const int rank : {0, 2}) EXPECT_THAT(outcomes[static_cast<size_t>(rank)].text, HasSubstr("rank 1 has left the job"));
}

TEST_F(MpiRank, RanksThatDisagreeGetAnErrorNamingBothSides) {
    for (const RankOutcome& outcome : run([](Communicator& communicator) {
             std::vector<float> data(communicator.world().rank == 1 ? 100'016 : 100'000);
             communicator.allreduce(data, {.what = "bucket", .step = 5, .bucket = 1}).wait();
             return std::string();
         })) {
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("disagree"), HasSubstr("rank 1 runs allreduce of 400064 bytes"),
                                        HasSubstr("runs allreduce of 400000 bytes"), HasSubstr("bucket 1 of step 5")));
    }
}

TEST_F(MpiRank, ARankOrWorldThatMpiDoesNotKnowIsRefused) {
    for (const RankOutcome& outcome : ProcessGroup{.size = kRanks}.run([](World world, Store&) {
             world.rank = (world.rank + 1) % kRanks;
             make_mpi_transport(world, {.connect_timeout_ms = 20'000});
             return std::string();
         })) {
        EXPECT_TRUE(outcome.threw);
        EXPECT_THAT(outcome.text, AllOf(HasSubstr("calls this process rank"), HasSubstr("of 3"), HasSubstr("comm.mpi")));
    }
}

TEST(ChooseMpi, GoesByTheLaunchersVariablesUnlessToldOtherwise) {
    const auto with = [](std::map<std::string, std::string> variables) {
        return [variables](const std::string& name) {
            const auto found = variables.find(name);
            return found == variables.end() ? std::nullopt : std::optional(found->second);
        };
    };
    EXPECT_EQ(choose_mpi("auto", with({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}})), "openmpi");
    EXPECT_EQ(choose_mpi("auto", with({{"PMIX_RANK", "0"}})), "openmpi");
    EXPECT_EQ(choose_mpi("auto", with({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})), "mpich");
    EXPECT_EQ(choose_mpi("auto", with({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMI_RANK", "0"}})), "openmpi") << "mpirun inside of Slurm";
    EXPECT_EQ(choose_mpi("mpich", with({{"OMPI_COMM_WORLD_SIZE", "2"}})), "mpich");
    EXPECT_THAT(error_of<ConfigError>([&] { choose_mpi("auto", with({})); }),
                AllOf(HasSubstr("start it with mpirun"), HasSubstr("PMI_RANK")));
    EXPECT_THAT(error_of<ConfigError>([&] { choose_mpi("lam", with({})); }), HasSubstr("`lam` is unknown"));
}

TEST(LoadMpi, AModuleThatIsNotThereIsNamedWithThePackageThatBringsIt) {
    setenv("LOCKSTEP_MODULES", "/nonexistent", 1);
    const std::string text = error_of<ConfigError>([] { load_mpi_module("no_such_mpi"); });
    unsetenv("LOCKSTEP_MODULES");
    EXPECT_THAT(text,
                AllOf(HasSubstr("not built"), HasSubstr("liblockstep_mpi_no_such_mpi.so in /nonexistent, "), HasSubstr("-dev")));
}

TEST(LoadMpi, AFileThatIsNoModuleIsAnErrorThatNamesIt) {
    const test::TemporaryFolder folder;
    std::filesystem::copy_file("/proc/self/comm", folder / "liblockstep_mpi_other.so");
    setenv("LOCKSTEP_MODULES", folder.path().c_str(), 1);
    const std::string text = error_of<ConfigError>([] { load_mpi_module("other"); });
    unsetenv("LOCKSTEP_MODULES");
    EXPECT_THAT(text, AllOf(HasSubstr("cannot load"), HasSubstr("liblockstep_mpi_other.so")));
}

}  // namespace
}  // namespace lockstep
