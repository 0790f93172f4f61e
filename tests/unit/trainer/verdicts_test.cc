// What is said when numbers go bad: where NaN began, whose replica is another.
#include <bit>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "collectives/communicator.h"
#include "tests/unit/trainer/training_run.h"
#include "trainer/gradient_reducer.h"
#include "trainer/nan_origin.h"
#include "trainer/replica_check.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class NanOriginTest : public ::testing::Test {
protected:
    static ParameterEntry entry(const char* name, ParameterKind kind) {
        return {.spec = {.name = name, .kind = kind, .shape = {20}}, .physical_count = 20};
    }
    // In the order of backward.
    NanOriginTest()
        : arena_({entry("fc.weight", ParameterKind::weight), entry("bn2.running_mean", ParameterKind::bn_mean),
                  entry("conv2.weight", ParameterKind::weight), entry("bn1.running_mean", ParameterKind::bn_mean),
                  entry("conv1.weight", ParameterKind::weight)},
                 pool_, pool_, 0) {}

    HeapPool pool_;
    ParameterArena arena_;
};

TEST_F(NanOriginTest, ForwardIsToldByTheFirstStatisticBackwardByTheFirstGradientAParameterBeforeBoth) {
    OwnHealth own;
    EXPECT_EQ(describe_origin(arena_, own, true), "");
    EXPECT_THAT(describe_origin(arena_, own, false), HasSubstr("before the loss"));
    for (const int64_t bad : {4, 2}) own.note(bad, false);
    EXPECT_EQ(describe_origin(arena_, own, true), "in backward, at conv2.weight");
    for (const int64_t bad : {1, 3}) own.note(bad, true);
    EXPECT_EQ(describe_origin(arena_, own, false), "in forward, at the input of bn1");
    arena_.value(0)[19] = kNan;
    arena_.value(2)[7] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(describe_origin(arena_, own, false), "the parameter conv2.weight was not finite before the step");
}

TEST_F(NanOriginTest, TheReducerSeesThisRanksOwnGradientsWhereverTheNumberLies) {
    const World world;
    const auto store = make_memory_store();
    const auto communicator = make_communicator(world, *store, {});
    GradientReducer reducer(*communicator, arena_, plan_buckets(arena_, {.bucket_bytes = 160}), true);
    const auto step = [&] {
        reducer.begin(0);
        for (size_t end = 1; end < arena_.entries().size(); ++end) reducer.ready_up_to(end);
        reducer.finish();
        return reducer.own_health();
    };
    for (const size_t at : {0, 15, 16, 19}) {
        arena_.gradient(2)[at] = arena_.gradient(4)[at] = kNan;
        EXPECT_EQ(step().first_gradient, 2);
        arena_.gradient(2)[at] = arena_.gradient(4)[at] = 1.0F;
        arena_.gradient(1)[at] = arena_.gradient(3)[at] = std::numeric_limits<float>::infinity();
        EXPECT_EQ(step().first_gradient, -1);
        EXPECT_EQ(reducer.own_health().first_statistic_of_forward, 3);
        arena_.gradient(1)[at] = arena_.gradient(3)[at] = 1e38F;
        EXPECT_EQ(step().first_statistic_of_forward, -1);
    }
}

TEST(NanOrigin, RanksWithSomethingToSayAreNamed) {
    EXPECT_EQ(combine_origins({"", "in backward, at fc.weight", ""}), "rank 1: in backward, at fc.weight");
    EXPECT_EQ(combine_origins({"a", "", "b"}), "rank 0: a; rank 2: b");
    EXPECT_THAT(combine_origins({"", ""}), HasSubstr("their sum is too large"));
}

TEST(ReplicaCheck, TheFewAreTheOddOnes) {
    EXPECT_THAT(odd_ones_out({7, 7, 7}), IsEmpty());
    EXPECT_THAT(odd_ones_out({7, 7, 9, 7}), ElementsAre(2));
    EXPECT_THAT(odd_ones_out({1, 7, 7}), ElementsAre(0));
    EXPECT_THAT(odd_ones_out({7, 9}), ElementsAre(1)) << "of two nobody knows; the lower rank counts";
    EXPECT_THAT(odd_ones_out({7, 9, 9, 7, 5}), ElementsAre(1, 2, 4));
}

class DriftTest : public TrainingTest {};

TEST_F(DriftTest, ATurnedBitEndsTheRunOnAllRanksAtTheNextLookNamingRankAndTensor) {
    for (const int ranks : {3, 1}) {
        Experiment experiment = tiny(fmt::format("drift-{}", ranks));
        experiment.train.check_replicas = Duration{Duration::Unit::iterations, 4.0};
        experiment.checkpoint.every = Duration{Duration::Unit::iterations, 1.0};
        TrainOptions options;
        options.after_step = [](int64_t step, Replica& replica, const World& world) {
            if (step != 5 || world.rank != world.size - 1) return;
            float& value = replica.arena().value(replica.arena().entries().size() - 2)[3];
            value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1U);
        };
        for (const RankResult& result : train(ranks, experiment, options)) {
            EXPECT_EQ(result.failed, ranks == 3) << "a single replica has nothing to differ from";
            if (ranks == 1) continue;
            EXPECT_THAT(result.message, HasSubstr("after step 7 the replicas differ: rank 2 has other weights than rank 0"));
            EXPECT_THAT(result.message, HasSubstr("first tensor: conv1."));
        }
    }
}

}  // namespace
}  // namespace lockstep
