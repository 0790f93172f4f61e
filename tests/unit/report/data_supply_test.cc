// What the report says about the loader.
#include "report/data_supply.h"

#include <gmock/gmock.h>

#include "tests/support/synthetic_run.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::make_synthetic_run;

constexpr int64_t kMs = 1'000'000;

MetricsLine line(double per_thread, double workers) {
    return {.step = 9,
            .values = {{"train.loss", 1.0},
                       {"data.wait_share", 0.5},
                       {"data.images_per_s_per_thread", per_thread},
                       {"data.ready_batches", 1.5},
                       {"data.read_mb_per_s", 12.5},
                       {"data.workers", workers}}};
}

// One rank; `wait_ns` of each step of 32 ms more is data wait.
RunAnalysis run_with(int64_t wait_ns) { return analyze(make_synthetic_run({.rank_count = 1, .data_wait_ns = wait_ns}), 3); }

TEST(DataSupply, StepsThatWaitGetTheNumberOfThreadsThatWouldKeepUp) {
    const RunAnalysis analysis = run_with(32 * kMs);  // half of each step
    const double demand = *analysis.images_per_s / (1.0 - (*analysis.mean_ms)[Part::data_wait] / *analysis.step_mean_ms);
    const std::vector<MetricsLine> metrics{line(demand / 3.5, 2)};
    const auto supply = data_supply(analysis, metrics);
    ASSERT_TRUE(supply);
    EXPECT_NEAR(supply->wait_share, (*analysis.mean_ms)[Part::data_wait] / *analysis.step_mean_ms, 1e-12);
    EXPECT_THAT(supply->sentence, AllOf(HasSubstr("data.workers=4 would keep up"), HasSubstr("2 loader threads of a rank make")));
    EXPECT_EQ(supply->ready_batches, 1.5);
    EXPECT_EQ(supply->read_mb_per_s, 12.5);
}

TEST(DataSupply, ThreadsThatWouldSufficeLackTheirCores) {
    const RunAnalysis analysis = run_with(32 * kMs);
    const std::vector<MetricsLine> metrics{line(1e6, 2)};
    EXPECT_THAT(data_supply(analysis, metrics)->sentence, AllOf(HasSubstr("train.threads"), Not(HasSubstr("data.workers="))));
}

TEST(DataSupply, StepsThatDoNotWaitGetNoAdvice) {
    const std::vector<MetricsLine> metrics{line(1.0, 2)};
    EXPECT_THAT(data_supply(run_with(0), metrics)->sentence,
                AllOf(HasSubstr("wait 0.0 %"), Not(HasSubstr(";  ")), Not(HasSubstr("would"))));
}

TEST(DataSupply, TheLastLineThatKnowsCountsAndWithoutOneThereIsNothing) {
    const RunAnalysis analysis = run_with(kMs);
    const std::vector<MetricsLine> metrics{line(100.0, 1), line(200.0, 3), {.step = 10, .values = {{"val.top1", 0.5}}}};
    EXPECT_EQ(data_supply(analysis, metrics)->workers, 3.0);
    EXPECT_FALSE(data_supply(analysis, std::span(metrics).last(1)));
    EXPECT_FALSE(data_supply(analyze(make_synthetic_run({.step_count = 2}), 3), metrics)) << "no steady step";
}

}  // namespace
}  // namespace lockstep
