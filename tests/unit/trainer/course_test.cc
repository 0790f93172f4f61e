// Where a run goes on with another global batch: each sample still once per epoch, rates and periods at the right place.
#include "trainer/course.h"

#include <gmock/gmock.h>

#include "core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSamples = 101;

// Epochs of five steps of 24 images, the last one short; 4 epochs.
Experiment experiment_of(int64_t batch) {
    Experiment experiment;
    experiment.batch = {.global = batch, .per_replica = 4};
    experiment.elastic.batch = "scale";
    experiment.lr.base = 0.1;
    experiment.lr.base_batch = 24;
    experiment.lr.schedule = "cosine";
    experiment.lr.warmup = {Duration::Unit::epochs, 1.0};
    experiment.train.duration = {Duration::Unit::epochs, 4.0};
    return experiment;
}

constexpr auto kEpochs = [](double amount) { return std::optional(Duration{Duration::Unit::epochs, amount}); };

TEST(Course, ARunFromTheBeginCountsInItsOwnSteps) {
    const Course course = plan_course(experiment_of(24), kSamples);
    EXPECT_EQ(course.shift, 0);
    EXPECT_EQ(course.total_steps, 20);
    EXPECT_EQ(course.place_at(7), (DataPlace{.epoch = 1, .samples = 48}));
    EXPECT_DOUBLE_EQ(course.epoch_at(5), 1.0);
    EXPECT_DOUBLE_EQ(course.rate_at(4), 0.1);
}

TEST(Course, WithTheSameBatchItIsTheSameCourseFromEveryStepOn) {
    const Course whole = plan_course(experiment_of(24), kSamples);
    for (int64_t step = 0; step <= whole.total_steps; ++step) {
        const Course course = plan_course(experiment_of(24), kSamples, step, whole.place_at(step));
        EXPECT_EQ(course.shift, 0) << step;
        EXPECT_EQ(course.place_at(step), whole.place_at(step)) << step;
        EXPECT_EQ(course.sampler.samples_in_step(step), whole.sampler.samples_in_step(step)) << step;
    }
}

TEST(Course, FromTheSecondStepOnAnotherBatchIsWhereItWouldHaveBeenFromTheBegin) {
    const Course before = plan_course(experiment_of(24), kSamples);
    const Course plain = plan_course(experiment_of(36), kSamples);  // epochs of three steps
    const Course now = plan_course(experiment_of(36), kSamples, 7, before.place_at(7));
    EXPECT_EQ(now.place_at(7), before.place_at(7));
    EXPECT_EQ(now.planned(7), 4);
    EXPECT_EQ(now.sampler.samples_in_step(4), 24) << "48 to 72 of the epoch";
    EXPECT_EQ(now.total_steps, 15);
    for (int64_t step = 8; step <= now.total_steps; ++step) {
        EXPECT_EQ(now.place_at(step), plain.place_at(step - 3)) << step;
        EXPECT_EQ(now.rate_at(step), plain.rate_at(step - 3)) << step;
    }
    EXPECT_DOUBLE_EQ(plain.rate.peak(), 1.5 * before.rate.peak());
}

TEST(Course, FractionsOfEpochsDoNotDriftOffTheirEnds) {
    const Course course = plan_course(experiment_of(36), kSamples);  // epochs of three steps
    std::vector<int64_t> halves, thirds;
    for (int64_t step = 1; step <= 9; ++step) {
        if (course.is_due(kEpochs(0.5), step)) halves.push_back(step);
        if (course.is_due(kEpochs(0.2), step)) thirds.push_back(step);
    }
    EXPECT_EQ(halves, (std::vector<int64_t>{2, 3, 5, 6, 8, 9}));
    EXPECT_EQ(thirds.size(), 9U) << "less than a step is every step";
}

TEST(Course, PeriodsInEpochsFollowTheDataAndThoseInStepsTheSteps) {
    const Course now = plan_course(experiment_of(36), kSamples, 7, {.epoch = 1, .samples = 48});
    std::vector<int64_t> epochs, steps;
    for (int64_t step = 8; step <= now.total_steps; ++step) {
        if (now.is_due(kEpochs(1.0), step)) epochs.push_back(step);
        if (now.is_due(Duration{Duration::Unit::iterations, 4.0}, step)) steps.push_back(step);
    }
    EXPECT_EQ(epochs, (std::vector<int64_t>{9, 12, 15})) << "the ends of epochs";
    EXPECT_EQ(steps, (std::vector<int64_t>{8, 12, 15})) << "and the end of the run";
    EXPECT_FALSE(now.is_due(std::nullopt, 15));
}

TEST(Course, ALengthInStepsIsOneOfTheRunsOwn) {
    Experiment experiment = experiment_of(36);
    experiment.train.duration = {Duration::Unit::iterations, 15.0};
    const Course now = plan_course(experiment, kSamples, 7, {.epoch = 1, .samples = 48});
    EXPECT_EQ(now.total_steps, 15);
    EXPECT_EQ(now.rate.options().total_steps, 12);
}

TEST(Course, ARemainderThatIsDroppedEndsTheEpochAlsoForAnotherBatch) {
    Experiment experiment = experiment_of(40);  // 80 of 101 are used
    experiment.data.remainder = "drop";
    const Course now = plan_course(experiment, kSamples, 4, {.epoch = 0, .samples = 96});
    EXPECT_EQ(now.place_at(4), (DataPlace{.epoch = 1, .samples = 0}));
}

TEST(ContinuedBatch, KeepsOrFollowsTheRanks) {
    Experiment experiment = experiment_of(24);
    EXPECT_EQ(continued_batch(experiment, 24, 2, 3), 36);
    EXPECT_EQ(continued_batch(experiment, 36, 3, 1), 12);
    EXPECT_EQ(continued_batch(experiment, 36, 3, 3), 36);
    experiment.elastic.batch = "keep";
    EXPECT_EQ(continued_batch(experiment, 24, 2, 3), 24);
}

TEST(ContinuedBatch, WhatIsNoWholeNumberOfVirtualWorkersIsRefusedWithTheNearestThatAre) {
    const Experiment experiment = experiment_of(20);
    try {
        continued_batch(experiment, 20, 2, 3);
        FAIL() << "five virtual workers on two ranks have no match on three";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("start 2 or 4 ranks"));
    }
}

}  // namespace
}  // namespace lockstep
