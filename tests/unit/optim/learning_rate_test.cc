#include "optim/learning_rate.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep {
namespace {

using Shape = LearningRateOptions::Shape;
using Scaling = LearningRateOptions::Scaling;

TEST(LearningRate, WarmupRisesAtEveryStepToTheScaledPeakAndThenFollowsTheSchedule) {
    const LearningRate rate({.shape = Shape::step,
                             .base = 0.1,
                             .base_batch = 8,
                             .batch_global = 16,
                             .warmup_steps = 12,
                             .step_at = {30},
                             .total_steps = 60});
    for (int64_t step = 1; step < 12; ++step) EXPECT_GT(rate.at(step), rate.at(step - 1));
    EXPECT_GT(rate.at(0), 0.1);
    EXPECT_DOUBLE_EQ(rate.at(5), 0.15);
    EXPECT_DOUBLE_EQ(rate.at(11), 0.2);
    EXPECT_DOUBLE_EQ(rate.at(12), 0.2);
    EXPECT_DOUBLE_EQ(rate.at(29), 0.2);
    EXPECT_DOUBLE_EQ(rate.at(30), 0.02);
}

TEST(LearningRate, TheLargeBatchRecipePeaksAt3Point2) {
    const LearningRate rate({.base = 0.1, .base_batch = 256, .batch_global = 8192});
    EXPECT_DOUBLE_EQ(rate.peak(), 3.2);
}

TEST(LearningRate, ScalingRules) {
    EXPECT_DOUBLE_EQ(LearningRate({.scaling = Scaling::none, .base = 0.1, .base_batch = 4, .batch_global = 64}).peak(), 0.1);
    EXPECT_DOUBLE_EQ(LearningRate({.scaling = Scaling::sqrt, .base = 0.1, .base_batch = 4, .batch_global = 64}).peak(), 0.4);
    EXPECT_DOUBLE_EQ(LearningRate({.scaling = Scaling::linear, .base = 0.1, .base_batch = 4, .batch_global = 64}).peak(), 1.6);
}

TEST(LearningRate, NeverStartsAboveThePeak) {
    // A small batch scales the rate down below the base; an explicit start above the peak is capped too.
    for (const double from : {-1.0, 5.0}) {
        const LearningRate rate({.base = 0.1, .base_batch = 256, .batch_global = 32, .warmup_steps = 10, .warmup_from = from});
        for (int64_t step = 0; step < 20; ++step) EXPECT_LE(rate.at(step), rate.peak());
        EXPECT_DOUBLE_EQ(rate.start(), rate.peak());
    }
}

TEST(LearningRate, NoWarmupStartsAtThePeak) {
    EXPECT_DOUBLE_EQ(LearningRate({.base = 0.1, .base_batch = 256, .batch_global = 512}).at(0), 0.2);
}

TEST(LearningRate, HasNoJumpAtTheEndOfWarmupInAnyShape) {
    for (const Shape shape : {Shape::constant, Shape::step, Shape::cosine, Shape::polynomial}) {
        for (const int64_t warmup : {1, 3, 50}) {
            const LearningRate rate({.shape = shape,
                                     .base = 0.1,
                                     .base_batch = 8,
                                     .batch_global = 64,
                                     .warmup_steps = warmup,
                                     .step_at = {80},
                                     .total_steps = 100});
            EXPECT_DOUBLE_EQ(rate.at(warmup - 1), rate.peak());
            EXPECT_DOUBLE_EQ(rate.at(warmup), rate.peak());
        }
    }
}

TEST(LearningRate, CosineAndPolynomialEndAtTheFinalRate) {
    for (const Shape shape : {Shape::cosine, Shape::polynomial}) {
        const LearningRate rate(
            {.shape = shape, .base = 0.1, .base_batch = 256, .warmup_steps = 10, .final_rate = 0.001, .total_steps = 110});
        EXPECT_DOUBLE_EQ(rate.at(110), 0.001);
        EXPECT_DOUBLE_EQ(rate.at(500), 0.001);
        for (int64_t step = 11; step < 110; ++step) EXPECT_LT(rate.at(step), rate.at(step - 1));
    }
    EXPECT_NEAR(LearningRate({.shape = Shape::cosine, .base = 1.0, .base_batch = 256, .total_steps = 100}).at(50), 0.5, 1e-12);
    EXPECT_NEAR(LearningRate({.shape = Shape::polynomial, .base = 1.0, .base_batch = 256, .total_steps = 100}).at(50), 0.25, 1e-12);
}

TEST(LearningRate, StepsMultiplyAtEachBoundary) {
    const LearningRate rate({.shape = Shape::step, .base = 1.0, .base_batch = 256, .step_at = {30, 60, 80}, .factor = 0.1});
    EXPECT_DOUBLE_EQ(rate.at(29), 1.0);
    EXPECT_DOUBLE_EQ(rate.at(30), 0.1);
    EXPECT_NEAR(rate.at(60), 0.01, 1e-15);
    EXPECT_NEAR(rate.at(80), 0.001, 1e-15);
}

TEST(LearningRate, AWarmupLongerThanTheRunKeepsRising) {
    const LearningRate rate({.base = 0.1, .batch_global = 512, .warmup_steps = 20, .total_steps = 10});
    for (int64_t step = 1; step < 10; ++step) EXPECT_GT(rate.at(step), rate.at(step - 1));
    EXPECT_LT(rate.at(9), rate.peak());
}

TEST(LearningRate, RefusesImpossibleValuesByTheirKey) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    const std::pair<LearningRateOptions, const char*> cases[] = {
        {{.base = 0.0}, "lr.base"},
        {{.base = kNan}, "lr.base"},
        {{.base_batch = 0}, "lr.base_batch"},
        {{.batch_global = 0}, "batch.global"},
        {{.warmup_steps = -1}, "lr.warmup"},
        {{.warmup_from = kNan}, "lr.warmup_from"},
        {{.factor = 0.0}, "lr.factor"},
        {{.factor = kNan}, "lr.factor"},
        {{.shape = Shape::cosine}, "train.duration"},
        {{.shape = Shape::polynomial, .power = 0.0, .total_steps = 10}, "lr.power"},
        {{.shape = Shape::step, .warmup_steps = 10, .step_at = {5}}, "lr.at"},
        {{.shape = Shape::step, .step_at = {50, 30}}, "lr.at"},
        {{.shape = Shape::cosine, .base = 0.1, .final_rate = 0.5, .total_steps = 10}, "lr.final_rate"},
        {{.shape = Shape::cosine, .base = 0.1, .final_rate = -0.1, .total_steps = 10}, "lr.final_rate"}};
    for (const auto& [options, key] : cases) {
        try {
            LearningRate rate(options);
            ADD_FAILURE() << "not refused: " << key;
        } catch (const ConfigError& error) {
            EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << key << ": " << error.what();
        }
    }
}

}  // namespace
}  // namespace lockstep
