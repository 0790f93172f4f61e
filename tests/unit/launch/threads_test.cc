#include "launch/threads.h"
#include "core/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

World local_world(int local_rank, int local_size, const std::string& launcher) {
    return {.rank = local_rank, .size = local_size, .local_rank = local_rank, .local_size = local_size, .launcher = launcher};
}

TEST(Threads, AllRanksTogetherDoNotExceedTheAllowedCores) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
        for (int cores = ranks; cores <= 9; ++cores) {
            const ThreadBudget budget = plan_threads(local_world(0, ranks, "lockstep"), 0, {.allowed = cores, .node = 16});
            EXPECT_LE(budget.compute_threads * ranks, cores);
            EXPECT_GE(budget.compute_threads, 1);
        }
    }
}

TEST(Threads, AnExplicitNumberIsKeptAndWarnedOfWhenTooHigh) {
    const ThreadBudget fine = plan_threads(local_world(0, 2, "lockstep"), 1, {.allowed = 2, .node = 2});
    EXPECT_EQ(fine.compute_threads, 1);
    EXPECT_EQ(fine.warning, "");
    const ThreadBudget many = plan_threads(local_world(0, 2, "lockstep"), 8, {.allowed = 2, .node = 2});
    EXPECT_EQ(many.compute_threads, 8);
    EXPECT_THAT(many.warning, HasSubstr("8 compute threads on 1 core"));
}

TEST(Threads, ANumberThatWouldNeverFinishAStepIsRefused) {
    EXPECT_NO_THROW(plan_threads(local_world(0, 1, "lockstep"), 32, {.allowed = 2, .node = 2}));
    EXPECT_THROW(plan_threads(local_world(0, 1, "lockstep"), 33, {.allowed = 2, .node = 2}), ConfigError);
}

TEST(Threads, TheBindingTrapOfOpenMpiIsNamedWithItsCure) {
    const ThreadBudget trapped = plan_threads(local_world(0, 2, "openmpi"), 0, {.allowed = 1, .node = 16});
    EXPECT_FALSE(trapped.shares_cores_with_peers);
    EXPECT_EQ(trapped.compute_threads, 1);
    EXPECT_THAT(trapped.warning, HasSubstr("mpirun --bind-to none"));
    const ThreadBudget free = plan_threads(local_world(0, 2, "openmpi"), 0, {.allowed = 16, .node = 16});
    EXPECT_EQ(free.compute_threads, 8);
    EXPECT_EQ(free.warning, "");
    EXPECT_EQ(plan_threads(local_world(0, 2, "openmpi"), 0, {.allowed = 8, .node = 16}).warning, "")
        << "half of the node each is right";
}

TEST(Threads, RanksThatShareTooFewCoresAreWarned) {
    const ThreadBudget budget = plan_threads(local_world(0, 2, "lockstep"), 0, {.allowed = 1, .node = 2});
    EXPECT_EQ(budget.compute_threads, 1);
    EXPECT_THAT(budget.warning, HasSubstr("2 ranks share 1 allowed core of 2"));
}

TEST(Threads, RanksGetDisjointContiguousCoresThatCoverTheMask) {
    for (int ranks = 2; ranks <= 5; ++ranks) {
        int next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            const World world = local_world(rank, ranks, "lockstep");
            const CoreRange range = cores_of_rank(world, plan_threads(world, 0, {.allowed = 11, .node = 11}));
            EXPECT_EQ(range.first, next);
            EXPECT_GE(range.count, 11 / ranks);
            next = range.first + range.count;
        }
        EXPECT_EQ(next, 11);
    }
}

TEST(Threads, RanksAreNotBoundWhereThatWouldSlowThem) {
    const World world = local_world(0, 2, "lockstep");
    EXPECT_EQ(cores_of_rank(world, plan_threads(world, 0, {.allowed = 1, .node = 4})).count, 0) << "too few cores";
    EXPECT_EQ(cores_of_rank(world, plan_threads(world, 4, {.allowed = 4, .node = 4})).count, 0) << "more threads than the share";
    const World bound = local_world(0, 2, "openmpi");
    EXPECT_EQ(cores_of_rank(bound, plan_threads(bound, 0, {.allowed = 2, .node = 4})).count, 0) << "already bound";
}

TEST(Threads, CoresThatTheLauncherGaveAreDividedAmongThoseThatShareThem) {
    const World world = local_world(3, 4, "lockstep");
    const ThreadBudget own = plan_threads(world, 0, {.allowed = 4, .node = 16, .sharers = 1});
    EXPECT_EQ(own.compute_threads, 4);
    EXPECT_EQ(cores_of_rank(world, own).count, 0) << "bound already";
    const ThreadBudget shared = plan_threads(world, 0, {.allowed = 8, .node = 16, .sharers = 2, .place = 1});
    EXPECT_EQ(shared.compute_threads, 4);
    EXPECT_EQ(cores_of_rank(world, shared).first, 4);
    EXPECT_EQ(cores_of_rank(world, shared).count, 4);
    EXPECT_EQ(shared.warning, "");
}

TEST(Threads, ThisMachineIsReadable) {
    const ThreadBudget budget = plan_threads(local_world(0, 1, "single"), 0);
    EXPECT_GE(budget.allowed_cores, 1);
    EXPECT_GE(budget.node_cores, budget.allowed_cores);
    EXPECT_EQ(budget.compute_threads, budget.allowed_cores);
}

}  // namespace
}  // namespace lockstep
