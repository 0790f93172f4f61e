#include "collectives/plan_choice.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using schedule::Algorithm;
using schedule::Collective;

TEST(PlanChoice, EveryChoiceExistsWhateverIsNamed) {
    for (const char* algorithm : {"auto", "exchange", "halving_doubling", "ring", "tree", "double_tree", "hierarchical"}) {
        const PlanChoice choice({.algorithm = algorithm});
        for (const Collective collective : {Collective::allreduce, Collective::reduce_scatter, Collective::allgather,
                                            Collective::broadcast, Collective::reduce}) {
            for (const int ranks : {1, 2, 3, 8, 9, 100}) {
                for (const size_t bytes : {size_t{0}, size_t{4}, size_t{1} << 16, size_t{1} << 30}) {
                    const schedule::Plan plan = choice.choose(collective, bytes, ranks);
                    EXPECT_EQ(plan.collective, collective);
                    EXPECT_TRUE(exists(collective, plan.algorithm)) << algorithm << " " << describe(plan);
                    EXPECT_GE(plan.radix, 2);
                    EXPECT_GE(plan.chunks, 1);
                }
            }
        }
    }
}

TEST(PlanChoice, TheNamedAlgorithmAndItsNumbersAreTaken) {
    EXPECT_EQ(PlanChoice({.algorithm = "exchange", .radix = 3}).choose(Collective::allreduce, 1 << 20, 9),
              (schedule::Plan{.algorithm = Algorithm::exchange, .radix = 3}));
    EXPECT_EQ(PlanChoice({.algorithm = "ring", .chunks = 7}).choose(Collective::allreduce, 4, 3),
              (schedule::Plan{.algorithm = Algorithm::ring, .chunks = 7}));
    EXPECT_EQ(PlanChoice({}).choose(Collective::broadcast, 4, 3, 2).root, 2);
}

TEST(PlanChoice, UpToEightRanksTheBitsDoNotDependOnTheSize) {
    const PlanChoice choice({});
    for (int ranks = 2; ranks <= 8; ++ranks) {
        for (const size_t bytes : {size_t{4}, size_t{1} << 16, size_t{1} << 22, size_t{1} << 30}) {
            const schedule::Plan plan = choice.choose(Collective::allreduce, bytes, ranks);
            EXPECT_TRUE(follows_rank_tree(plan, ranks)) << describe(plan) << " on " << ranks;
        }
    }
    EXPECT_EQ(choice.choose(Collective::allreduce, size_t{1} << 30, 16).algorithm, Algorithm::ring);
}

TEST(PlanChoice, ThresholdsMoveTheBorders) {
    const PlanChoice choice({.exchange_below_bytes = 100, .ring_from_bytes = 1000});
    EXPECT_EQ(choice.choose(Collective::allreduce, 99, 16).algorithm, Algorithm::exchange);
    EXPECT_EQ(choice.choose(Collective::allreduce, 100, 16).algorithm, Algorithm::halving_doubling);
    EXPECT_EQ(choice.choose(Collective::allreduce, 16'000, 16).algorithm, Algorithm::ring);
}

}  // namespace
}  // namespace lockstep
