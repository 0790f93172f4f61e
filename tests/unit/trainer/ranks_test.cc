// The number of ranks, the bucket plan and the communication backend change time, not results.
#include <cmath>

#include <gmock/gmock.h>

#include <fmt/format.h>

#include "tests/unit/trainer/training_run.h"

namespace lockstep {
namespace {

class RanksTest : public TrainingTest, public ::testing::WithParamInterface<std::string> {};

// Tolerance: the same numbers are added, within a rank first and then over ranks, so only rounding differs.
TEST_P(RanksTest, OneToFourRanksEndWithTheSameWeights) {
    Experiment experiment = tiny("ranks");
    experiment.train.backend = GetParam();
    experiment.run.resume = "never";
    const std::vector<float> alone = weights(1, experiment);
    for (const int ranks : {2, 3, 4}) {
        for (const char* communication : {"native", "tcp", "gloo"}) {
            experiment.comm.backend = communication;
            EXPECT_LT(relative_difference(weights(ranks, experiment), alone), 1e-5) << ranks << " ranks, " << communication;
        }
        experiment.comm.backend = "auto";
    }
}

TEST_P(RanksTest, ARepeatedRunGivesTheSameBits) {
    Experiment experiment = tiny("repeat");
    experiment.train.backend = GetParam();
    experiment.model.arch = "tiny_bn";
    experiment.run.resume = "never";
    const std::vector<float> first = weights(3, experiment);
    EXPECT_EQ(first, weights(3, experiment));
    experiment.run.seed = 43;
    EXPECT_NE(first, weights(3, experiment));
}

// Rank 0 measures, once: what it keeps is what the second run uses, on all ranks.
TEST_F(TrainingTest, RanksUseTheConvolutionsThatRankZeroMeasured) {
    Experiment experiment = tiny("convolutions");
    experiment.train.backend = "onednn";
    experiment.model.arch = "tiny_bn";
    experiment.run.resume = "never";
    experiment.compute.autotune = "measure";
    experiment.compute.cache = folder("convolution-cache").string();
    const std::vector<float> first = weights(3, experiment);
    const std::filesystem::directory_iterator files(experiment.compute.cache);
    ASSERT_EQ(std::distance(files, std::filesystem::directory_iterator()), 1);
    const auto written = std::filesystem::last_write_time(std::filesystem::directory_iterator(experiment.compute.cache)->path());
    EXPECT_EQ(weights(3, experiment), first);
    EXPECT_EQ(std::filesystem::last_write_time(std::filesystem::directory_iterator(experiment.compute.cache)->path()), written);
}

INSTANTIATE_TEST_SUITE_P(Backends, RanksTest, ::testing::Values("reference", "onednn"));

// Not a tolerance but bits. 32 images a step as 8 virtual workers; 60 images, so the second step of an epoch lacks one virtual
// worker.
TEST_P(RanksTest, AnyWorldOfAPowerOfTwoGivesTheSameBits) {
    Experiment experiment = tiny("any-world");
    experiment.train.backend = GetParam();
    experiment.model.arch = "tiny_bn";
    experiment.run.reproducible = "any_world";
    experiment.run.resume = "never";
    experiment.batch.global = 32;
    experiment.train.threads = 1;
    const std::vector<float> alone = weights(1, experiment);
    for (const int ranks : {2, 4, 8}) EXPECT_EQ(weights(ranks, experiment), alone) << ranks << " ranks";
    experiment.comm.backend = "gloo";
    EXPECT_EQ(weights(4, experiment), alone);
    experiment.comm.backend = "tcp";
    for (const int ranks : {2, 4}) EXPECT_EQ(weights(ranks, experiment), alone) << ranks << " ranks, tcp";
    experiment.comm.probe = "auto";  // whatever the probe finds
    EXPECT_EQ(weights(4, experiment), alone) << "tcp, measured links";
    experiment.comm.probe = "never";
    experiment.comm.algorithm = "ring";
    for (const RankResult& result : train(4, experiment)) {
        EXPECT_TRUE(result.failed);
        EXPECT_THAT(result.message, ::testing::HasSubstr("any_world needs sums along the one tree"));
    }
    experiment.comm.algorithm = "auto";
    experiment.comm.backend = "native";
    experiment.run.reproducible = "same_world";
    EXPECT_NE(weights(1, experiment), alone) << "the plain order adds up differently, or the test shows nothing";
}

class ReducerTest : public TrainingTest {};

TEST_F(ReducerTest, BucketSizesAndOverlapDoNotChangeABit) {
    Experiment experiment = tiny("buckets");
    experiment.train.duration.amount = 8.0;
    experiment.run.resume = "never";
    const std::vector<float> expected = weights(2, experiment);
    for (const int64_t bucket_bytes : {int64_t{1} << 10, int64_t{64} << 10, int64_t{25} << 20, int64_t{1} << 30}) {
        for (const bool overlap : {true, false}) {
            experiment.comm.bucket_bytes = bucket_bytes;
            experiment.comm.last_bucket_bytes = 1 << 10;
            experiment.comm.overlap = overlap;
            EXPECT_EQ(weights(2, experiment), expected) << bucket_bytes << " overlap " << overlap;
        }
    }
}

TEST_F(ReducerTest, ManyMoreRanksThanTheLastStepHasWorkersTakePartWithZeros) {
    // 60 images: the third step of an epoch has 12, three virtual workers for four ranks.
    Experiment experiment = tiny("zeros");
    experiment.run.resume = "never";
    experiment.train.duration.amount = 3.0;
    EXPECT_LT(relative_difference(weights(4, experiment), weights(1, experiment)), 1e-6);
}

class RemainderTest : public TrainingTest {};

TEST_F(RemainderTest, AVirtualWorkerOfOneImageWithBatchNormIsFiniteOnOneAndTwoRanks) {
    Experiment experiment = tiny("remainder");
    experiment.model.arch = "tiny_bn";
    experiment.data.train.synthetic_size = 65;
    experiment.batch.global = 64;
    experiment.batch.per_replica = 32;
    experiment.train.duration.amount = 4.0;
    experiment.run.resume = "never";
    for (const int ranks : {1, 2}) {
        for (const float value : weights(ranks, experiment)) ASSERT_TRUE(std::isfinite(value));
    }
}

TEST_F(RemainderTest, ABatchThatCannotBeSharedIsAConfigurationError) {
    Experiment experiment = tiny("shared");
    experiment.batch.global = 4;
    for (const RankResult& result : train(2, experiment)) {
        EXPECT_TRUE(result.failed);
        EXPECT_THAT(result.message, ::testing::HasSubstr("batch.global"));
    }
}

class EvaluationTest : public TrainingTest {};

TEST_F(EvaluationTest, CountsEveryImageOnceWithTheSameNumbersOnAnyNumberOfRanks) {
    Experiment experiment = tiny("evaluation");
    experiment.model.arch = "tiny_bn";
    experiment.data.val.source = "synthetic";
    experiment.data.val.synthetic_size = 21;
    experiment.train.duration.amount = 1.0;
    experiment.train.eval_every = Duration{Duration::Unit::iterations, 1.0};
    experiment.lr.base = 1e-9;  // the weights stay what they were, to the last bits that ranks could change
    experiment.optim.weight_decay = 0.0;
    experiment.batchnorm.keep = 1.0;
    experiment.run.resume = "never";
    const RankResult alone = train(1, experiment).front();
    ASSERT_FALSE(alone.failed) << alone.message;
    ASSERT_EQ(alone.evaluations.size(), 4U);
    EXPECT_EQ(alone.evaluations[0], 21.0);
    EXPECT_EQ(alone.evaluations[3], 1.0);  // four classes: all are among the first five
    for (const int ranks : {2, 3, 4}) {
        for (const RankResult& result : train(ranks, experiment)) {
            ASSERT_FALSE(result.failed) << result.message;
            EXPECT_EQ(result.evaluations[0], 21.0);
            EXPECT_NEAR(result.evaluations[1], alone.evaluations[1], 1e-6);
            EXPECT_EQ(result.evaluations[2], alone.evaluations[2]);
        }
    }
}

TEST(Evaluation, CombinesInBatchOrderAndSurvivesNothing) {
    const EvaluationResult result = combine({{.loss_sum = 2.0, .count = 4, .top1 = 3, .top5 = 4}, {.loss_sum = 1.0, .count = 1}});
    EXPECT_EQ(result.count, 5);
    EXPECT_DOUBLE_EQ(result.loss, 0.6);
    EXPECT_DOUBLE_EQ(result.top1, 0.6);
    EXPECT_DOUBLE_EQ(result.top5, 0.8);
    EXPECT_EQ(combine({}).count, 0);
}

class AgreementRunTest : public TrainingTest {};

TEST_F(AgreementRunTest, RanksWithDifferentNetworksEndWithTheDifferenceAndMakeNoStep) {
    TrainOptions options;
    options.for_rank = [](Experiment& experiment, const World& world) {
        if (world.rank != 2) return;
        experiment.model.num_classes = 7;
        experiment.resolved_yaml = "name: other\n";
        experiment.hash = "other";
    };
    options.after_step = [](int64_t, Replica&, const World&) { FAIL() << "a step was made"; };
    for (const RankResult& result : train(3, tiny("agreement"), options)) {
        EXPECT_TRUE(result.failed);
        EXPECT_THAT(result.message, ::testing::HasSubstr("rank 0 has \"name: tiny\", rank 2 has \"name: other\""));
    }
}

}  // namespace
}  // namespace lockstep
