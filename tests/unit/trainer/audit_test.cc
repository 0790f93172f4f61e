// The log of samples, and what it proves: over restarts and numbers of ranks each sample is used once in each epoch.
#include "trainer/audit.h"

#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "core/files.h"
#include "tests/unit/trainer/training_run.h"
#include "trainer/checkpoint.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// 10 samples, steps of 4, 4 and 2, virtual workers of 2.
class AuditTest : public TrainingTest {
protected:
    AuditTest() { prepare_audit(run(), kPlan, 0); }

    fs::path run() const { return folder("run"); }
    void log(int rank, int world_size, int64_t step, int64_t worker, std::vector<int64_t> samples) const {
        AuditLog log(run(), rank, world_size);
        log.add(step, {.epoch = step / 3, .worker = worker, .samples = samples});
        log.write();
    }
    // Two ranks, an epoch and a step.
    void log_all() const {
        const std::vector<std::vector<int64_t>> workers{{3, 1}, {4, 0}, {5, 9}, {2, 6}, {7, 8}, {}, {0, 1}, {2, 3}};
        for (int64_t index = 0; index < 8; ++index) {
            if (!workers[static_cast<size_t>(index)].empty())
                log(static_cast<int>(index % 2), 2, index / 2, index % 2, workers[static_cast<size_t>(index)]);
        }
    }
    void append(int rank, const std::string& text) const {
        std::ofstream(run() / "audit" / fmt::format("rank-{}.tsv", rank), std::ios::app) << text;
    }

    static constexpr SamplerOptions kPlan{.sample_count = 10, .batch_global = 4, .per_replica = 2};
};

TEST_F(AuditTest, AWholeEpochAndABegunOneAreSound) {
    log_all();
    const AuditReport report = check_audit(run());
    EXPECT_THAT(report.problems, IsEmpty());
    EXPECT_EQ(report.steps, 4);
    EXPECT_EQ(report.whole_epochs, 1);
    EXPECT_EQ(report.samples, 14);
    EXPECT_THAT(report.world_from_step, ElementsAre(Pair(0, 2)));
}

TEST_F(AuditTest, APlanFromBeforeBatchesCouldChangeIsStillOne) {
    log_all();
    write_file_atomically(run() / "audit" / "plan.json",
                          R"({"sample_count": 10, "batch_global": 4, "per_replica": 2, "keep_remainder": true})");
    EXPECT_THAT(check_audit(run()).problems, IsEmpty());
    prepare_audit(run(), kPlan, 4);
    EXPECT_EQ(check_audit(run()).samples, 14);
}

TEST_F(AuditTest, ASampleUsedAgainIsNamed) {
    log(0, 1, 0, 0, {3, 1});
    log(0, 1, 0, 1, {4, 3});
    EXPECT_THAT(check_audit(run()).problems, ElementsAre("epoch 0: sample 3 was used again in step 0 by virtual worker 1"));
}

TEST_F(AuditTest, AMissingWorkerAMissingStepAndAForeignSampleAreNamed) {
    log(0, 1, 0, 0, {3, 1});
    log(0, 1, 2, 0, {4, 10});
    EXPECT_THAT(check_audit(run()).problems,
                ElementsAre("step 2: sample 10 does not exist", "step 0: 2 samples, 4 expected", "steps 1 to 1 are missing",
                            "epoch 0: 3 different samples were used, 10 expected"));
}

TEST_F(AuditTest, AContinuedRunDropsWhatItMakesAgainAndWhatAKilledWriterLeft) {
    log_all();
    append(1, "3\t1\t2\t1\t2 3");  // no end of line
    prepare_audit(run(), kPlan, 3);
    const AuditReport cut = check_audit(run());
    EXPECT_THAT(cut.problems, IsEmpty());
    EXPECT_EQ(cut.steps, 3);
    for (const auto& [worker, samples] : std::map<int64_t, std::vector<int64_t>>{{0, {9, 8}}, {1, {7, 6}}})
        log(0, 1, 3, worker, samples);
    const AuditReport gone_on = check_audit(run());
    EXPECT_THAT(gone_on.problems, IsEmpty());
    EXPECT_THAT(gone_on.world_from_step, ElementsAre(Pair(0, 2), Pair(3, 1)));
    prepare_audit(run(), kPlan, 0);
    EXPECT_EQ(check_audit(run()).steps, 0);
}

// After two steps of 4 a step of what is left to 6, and then epochs of 6 and 4.
TEST_F(AuditTest, AnotherGlobalBatchFromAStepOnIsPartOfThePlan) {
    SamplerOptions six = kPlan;
    six.batch_global = 6;
    log(0, 1, 0, 0, {3, 1});
    log(0, 1, 0, 1, {4, 0});
    const auto go_on = [&] {
        const int64_t planned = continue_from({.epoch = 0, .samples = 4}, six);
        prepare_audit(run(), six, 1, planned - 1);
    };
    go_on();
    go_on();  // and once more, before a step was made
    AuditLog log(run(), 0, 2);
    const auto add = [&](int64_t step, int64_t epoch, std::vector<int64_t> samples) {
        log.add(step, {.epoch = epoch, .worker = 0, .samples = samples});
        log.write();
    };
    add(1, 0, {5, 9});
    add(2, 0, {2, 6, 7, 8});
    AuditReport report = check_audit(run());
    EXPECT_THAT(report.problems, IsEmpty());
    EXPECT_EQ(report.whole_epochs, 1);
    prepare_audit(run(), six, 3, -1);  // the same batch goes on
    add(3, 1, {0, 1, 2, 3, 4, 5});
    add(4, 1, {6, 7, 8, 8});
    report = check_audit(run());
    EXPECT_EQ(report.whole_epochs, 1);
    EXPECT_THAT(report.problems, ElementsAre("epoch 1: sample 8 was used again in step 4 by virtual worker 0",
                                             "epoch 1: 9 different samples were used, 10 expected"));
}

TEST_F(AuditTest, WhatIsNoLogIsRefused) {
    EXPECT_THROW(check_audit(folder("nowhere")), DataError);
    append(0, "0\t0\t1\t0\t1 x \n");
    EXPECT_THROW(check_audit(run()), DataError);
}

// Stopped in the middle of epochs and continued on other numbers of ranks: 2, then 1, 4 and 3.
TEST_F(AuditTest, OverTwoOneFourAndThreeRanksTheWeightsAreThoseOfTheUnbrokenRunAndEachSampleIsUsedOncePerEpoch) {
    Experiment experiment = tiny("broken");
    experiment.model.arch = "tiny_bn";
    experiment.run.reproducible = "any_world";
    experiment.run.audit = true;
    experiment.batch.global = 32;  // 60 images: epochs of two steps, the second one short
    experiment.checkpoint.every = Duration{Duration::Unit::iterations, 1000.0};  // and at the end
    Experiment unbroken = experiment;
    unbroken.run.dir = folder("unbroken").string();
    std::map<int, std::vector<float>> expected;
    TrainOptions options;
    for (const int steps : {15, 20}) {
        unbroken.train.duration.amount = steps;
        expected[steps] = weights(1, unbroken);
    }
    for (const auto& [ranks, steps] : std::vector<std::pair<int, int>>{{2, 3}, {1, 9}, {4, 15}, {3, 20}}) {
        experiment.train.duration.amount = steps;
        if (ranks == 3) experiment.run.reproducible = "same_world";  // three ranks do not fill a binary tree
        const std::vector<float> found = weights(ranks, experiment);
        if (steps == 15) {
            EXPECT_EQ(found, expected[15]);
        }
        if (steps == 20) {
            EXPECT_LT(relative_difference(found, expected[20]), 1e-6);
        }
    }
    const AuditReport report = check_audit(experiment.run.dir);
    EXPECT_THAT(report.problems, IsEmpty());
    EXPECT_EQ(report.steps, 20);
    EXPECT_EQ(report.whole_epochs, 10);
    EXPECT_EQ(report.samples, 600);
    EXPECT_THAT(report.world_from_step, ElementsAre(Pair(0, 2), Pair(3, 1), Pair(9, 4), Pair(15, 3)));
}

// On 2, 1 and 3 ranks with 24, 12 and 36 images a step; 60 images an epoch, changed in the midst of two.
TEST_F(AuditTest, WithABatchThatFollowsTheRanksEachSampleIsStillUsedOncePerEpoch) {
    Experiment experiment = tiny("scaled");
    experiment.elastic.batch = "scale";
    experiment.run.audit = true;
    experiment.checkpoint.every = Duration{Duration::Unit::iterations, 1000.0};  // at the end
    const auto go_on = [&](int ranks, int steps) {
        experiment.train.duration.amount = steps;
        weights(ranks, experiment);
        return CheckpointFolder({.folder = fs::path(experiment.run.dir) / "checkpoints"}).latest()->manifest;
    };
    Manifest manifest = go_on(2, 4);
    EXPECT_EQ(manifest.batch_global, 24);
    EXPECT_EQ(manifest.place, (DataPlace{.epoch = 1, .samples = 24}));
    manifest = go_on(1, 11);  // three steps to the end of the epoch, then four
    EXPECT_EQ(manifest.batch_global, 12);
    EXPECT_EQ(manifest.place, (DataPlace{.epoch = 2, .samples = 48}));
    manifest = go_on(3, 15);  // one of 12, an epoch of 36 and 24, one of 36
    EXPECT_EQ(manifest.batch_global, 36);
    EXPECT_EQ(manifest.place, (DataPlace{.epoch = 4, .samples = 36}));
    const AuditReport report = check_audit(experiment.run.dir);
    EXPECT_THAT(report.problems, IsEmpty());
    EXPECT_EQ(report.steps, 15);
    EXPECT_EQ(report.whole_epochs, 4);
    EXPECT_EQ(report.samples, 4 * 60 + 36);
}

TEST_F(AuditTest, AnyWorldRefusesToGoOnWithABatchThatFollowedTheRanks) {
    Experiment experiment = tiny("tree");
    experiment.batch.per_replica = 12;
    experiment.train.duration.amount = 0;
    experiment.elastic.batch = "scale";
    experiment.checkpoint.every = Duration{Duration::Unit::iterations, 1000.0};  // at the end
    for (const int ranks : {2, 1}) {
        experiment.train.duration.amount += 2;
        weights(ranks, experiment);
    }
    experiment.elastic.batch = "keep";
    experiment.run.reproducible = "any_world";
    experiment.train.duration.amount += 2;
    EXPECT_THAT(train(1, experiment).front().message,
                HasSubstr("adds along a tree of batch.global 24, but elastic.batch has brought"));
}

}  // namespace
}  // namespace lockstep
