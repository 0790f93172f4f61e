#include "report/analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/synthetic_run.h"

namespace lockstep {
namespace {

using lockstep::testing_support::make_synthetic_run;
using lockstep::testing_support::SyntheticRun;
using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSkip = 3;

StoredStep step_with(std::vector<Span> spans, std::vector<BucketRecord> buckets, int64_t end_ns = 100) {
    return {.step = 5, .begin_ns = 1, .end_ns = 1 + end_ns, .images = 1, .spans = std::move(spans), .buckets = std::move(buckets)};
}

StepBudget budget_of(const StoredStep& step, std::vector<Span> pauses = {}) {
    return budget_of_step(step, bucket_times(step, {}), pauses);
}

int64_t sum_of_parts(const StepBudget& budget) {
    return std::accumulate(budget.part_ns.values.begin(), budget.part_ns.values.end(), int64_t{0});
}

double sum_of_parts(const PerPart<double>& parts) { return std::accumulate(parts.values.begin(), parts.values.end(), 0.0); }

// Plain second opinion: looks at every nanosecond on its own.
StepBudget budget_by_walking(const StoredStep& step, const std::vector<BucketTimes>& buckets) {
    const auto in_span = [&](Span::Kind kind, int64_t time_ns) {
        return std::ranges::any_of(
            step.spans, [&](const Span& span) { return span.kind == kind && span.begin_ns <= time_ns && time_ns < span.end_ns; });
    };
    StepBudget budget;
    for (int64_t now = step.begin_ns; now < step.end_ns; ++now) {
        const bool transfer = std::ranges::any_of(buckets, [&](const auto& b) { return b.arrived_ns <= now && now < b.end_ns; });
        const bool waiting = std::ranges::any_of(buckets, [&](const auto& b) { return b.start_ns <= now && now < b.arrived_ns; });
        Part part = Part::other;
        if (in_span(Span::Kind::forward, now)) {
            part = Part::forward;
        } else if (in_span(Span::Kind::backward, now)) {
            part = Part::backward;
        } else if (in_span(Span::Kind::optimizer, now)) {
            part = Part::optimizer;
        } else if (transfer) {
            part = Part::exposed_transfer;
        } else if (waiting) {
            part = Part::arrival_wait;
        } else if (in_span(Span::Kind::data_wait, now)) {
            part = Part::data_wait;
        }
        ++budget.part_ns[part];
        ++budget.wall_ns;
        budget.transfer_ns += transfer ? 1 : 0;
    }
    return budget;
}

TEST(StepBudget, AgreesWithWalkingOverEveryNanosecond) {
    uint64_t state = 1;
    const auto random = [&](int64_t bound) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(bound));
    };
    for (int round = 0; round < 500; ++round) {
        StoredStep step{.step = 1, .begin_ns = 50, .end_ns = 50 + random(300)};
        for (int64_t span = random(8); span > 0; --span) {
            const int64_t begin = 1 + random(400);
            step.spans.push_back({static_cast<Span::Kind>(random(5)), begin, begin + random(90)});
        }
        for (int32_t bucket = 0; bucket < 3; ++bucket) {
            const int64_t start = 1 + random(350);
            step.buckets.push_back({bucket, start - random(10), start, random(2) * (start + random(40)), start + random(60)});
        }
        const auto times = bucket_times(step, {});
        const StepBudget fast = budget_of_step(step, times, {});
        const StepBudget slow = budget_by_walking(step, times);
        EXPECT_EQ(fast.wall_ns, slow.wall_ns);
        EXPECT_EQ(fast.part_ns.values, slow.part_ns.values) << "round " << round;
        EXPECT_EQ(fast.transfer_ns, slow.transfer_ns);
        EXPECT_EQ(sum_of_parts(fast), fast.wall_ns);
    }
}

TEST(StepBudget, OverlappingBucketsCountOnce) {
    // Both buckets move bytes during [41, 61); only 10 ns of it lie behind backward.
    const StoredStep step =
        step_with({{Span::Kind::backward, 1, 51}, {Span::Kind::finish_wait, 51, 101}}, {{0, 30, 41, 41, 61}, {1, 30, 41, 41, 61}});
    const StepBudget budget = budget_of(step);
    EXPECT_EQ(budget.transfer_ns, 20);
    EXPECT_EQ(budget.hidden_transfer_ns, 10);
    EXPECT_EQ(budget.part_ns[Part::exposed_transfer], 10);
    EXPECT_EQ(budget.part_ns[Part::other], 40);  // finish_wait that no bucket explains
}

TEST(StepBudget, PausesInsideTheStepAreNoPartOfIt) {
    const StoredStep step = step_with({{Span::Kind::forward, 41, 101}}, {});
    const StepBudget budget = budget_of(step, {{Span::Kind::evaluation, 1, 31}});
    EXPECT_EQ(budget.wall_ns, 70);
    EXPECT_EQ(budget.part_ns[Part::other], 10);
}

TEST(Analysis, PartsAddUpToTheStepOnEveryRank) {
    const RunAnalysis analysis = analyze(make_synthetic_run({.rank_count = 3, .data_wait_ns = kMs, .other_ns = kMs / 2}), kSkip);
    for (const RankSummary& rank : analysis.ranks) EXPECT_NEAR(sum_of_parts(*rank.mean_ms), *rank.step_mean_ms, 1e-9);
    EXPECT_NEAR(sum_of_parts(*analysis.mean_ms), *analysis.step_mean_ms, 1e-9);
    EXPECT_NEAR((*analysis.mean_ms)[Part::data_wait], 1.0, 1e-9);
    EXPECT_NEAR((*analysis.mean_ms)[Part::other], 0.5, 1e-9);
}

TEST(Analysis, KnownRunGivesKnownNumbers) {
    // Step: 10 forward + 20 backward + 1 exposed (the last bucket becomes ready at the end of backward) + 2 optimizer = 33 ms.
    const RunAnalysis analysis = analyze(make_synthetic_run({}), kSkip);
    EXPECT_EQ(analysis.common_steps, 20);
    EXPECT_EQ(analysis.steady_steps, 17);
    EXPECT_NEAR(analysis.step_ms->p50, 33.0, 1e-9);
    EXPECT_NEAR(*analysis.images_per_s, 64 / 0.033, 1e-6);
    EXPECT_NEAR(*analysis.sync_efficiency, 1.0 - 1.0 / 33.0, 1e-9);
    EXPECT_NEAR(*analysis.overlap_share, 0.5, 1e-9);
    ASSERT_EQ(analysis.buckets.size(), 2U);
    EXPECT_NEAR(*analysis.buckets[0].hidden_share, 1.0, 1e-9);
    EXPECT_NEAR(*analysis.buckets[1].hidden_share, 0.0, 1e-9);
    EXPECT_NEAR(analysis.buckets[0].ready_ms, 20.0, 1e-9);
    EXPECT_NEAR(*analysis.buckets[0].algbw_gb_per_s, (8 << 20) / 1e6, 1e-6);
    EXPECT_NEAR(*analysis.buckets[0].busbw_gb_per_s, (8 << 20) / 1e6, 1e-6);  // 2 (p - 1) / p = 1 for two ranks
    EXPECT_NEAR(analysis.model->efficiency, 1.0, 1e-9);
    EXPECT_NEAR(*analysis.model->bandwidth_gb_per_s, (16 << 20) / 2e6, 1e-6);
}

TEST(Analysis, FullyHiddenCommunicationIsNeitherExposedNorLost) {
    RunRecords run = make_synthetic_run({.transfer_ns = {3 * kMs, 3 * kMs}});
    for (RankRecords& rank : run.ranks) {  // move all of it into backward
        for (StoredStep& step : rank.steps) {
            for (BucketRecord& bucket : step.buckets) {
                for (int64_t* time : {&bucket.ready_ns, &bucket.start_ns, &bucket.arrived_ns, &bucket.end_ns}) *time -= 4 * kMs;
            }
        }
    }
    const RunAnalysis analysis = analyze(run, kSkip);
    EXPECT_EQ((*analysis.mean_ms)[Part::exposed_transfer], 0.0);
    EXPECT_NEAR(*analysis.sync_efficiency, 1.0, 1e-12);
    EXPECT_NEAR(*analysis.overlap_share, 1.0, 1e-12);
}

TEST(Analysis, SlowTransferShowsAsExposedTransferAndInTheFormula) {
    const RunAnalysis analysis = analyze(make_synthetic_run({.transfer_ns = {20 * kMs, 20 * kMs}}), kSkip);
    EXPECT_NEAR((*analysis.mean_ms)[Part::exposed_transfer], 30.0, 1e-9);  // from 20 to 60 ms, backward ends at 30
    EXPECT_NEAR((*analysis.mean_ms)[Part::arrival_wait], 0.0, 1e-9);
    EXPECT_NEAR(analysis.model->efficiency, 30.0 / 50.0, 1e-9);  // (10 + 20) / (10 + max(20, 40))
    EXPECT_EQ(analysis.losses.front().part, Part::exposed_transfer);
    EXPECT_NEAR(analysis.losses.front().ceiling_gain_percent, 100.0 * 30.0 / 32.0, 1e-6);
}

TEST(Analysis, FormulaMatchesTheRecipesTable) {
    // Tf 60, Tb 120, Tsync 200 ms: 69 %; Tsync 300: 50 %.
    const auto efficiency = [](int64_t sync_ms) {
        const SyntheticRun plan{.forward_ns = 60 * kMs, .backward_ns = 120 * kMs, .transfer_ns = {sync_ms * kMs}};
        return analyze(make_synthetic_run(plan), kSkip).model->efficiency;
    };
    EXPECT_NEAR(efficiency(100), 1.0, 1e-9);
    EXPECT_NEAR(efficiency(200), 180.0 / 260.0, 1e-9);
    EXPECT_NEAR(efficiency(300), 0.5, 1e-9);
}

// A late rank 1, by data or by compute: with arrival times recorded, and without.
class LateRank : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(LateRank, ShowsAsArrivalWaitOnTheVictimsAndAsStragglerWithItsCause) {
    const auto [by_data, records_arrival] = GetParam();
    const auto late = [](int rank, int64_t) { return rank == 1 ? 8 * kMs : 0; };
    SyntheticRun plan{.rank_count = 4, .records_arrival = records_arrival};
    (by_data ? plan.extra_data_wait_ns : plan.extra_forward_ns) = late;
    const RunAnalysis analysis = analyze(make_synthetic_run(plan), kSkip);

    EXPECT_NEAR((*analysis.ranks[1].mean_ms)[Part::arrival_wait], 0.0, 1e-9);
    // Both buckets of the others wait; the first one's wait is partly behind backward: 20..28 of 10..30, and 30..38 exposed.
    EXPECT_NEAR((*analysis.ranks[0].mean_ms)[Part::arrival_wait], 8.0, 1e-9);
    EXPECT_NEAR(*analysis.ranks[1].last_share, 1.0, 1e-9);
    EXPECT_EQ(analysis.ranks[1].cause, by_data ? "data wait" : "compute");
    for (const int victim : {0, 2, 3}) EXPECT_TRUE(analysis.ranks[static_cast<size_t>(victim)].cause.empty());
    EXPECT_EQ(analysis.losses.front().part, Part::arrival_wait);
    EXPECT_THAT(analysis.headline, HasSubstr("rank 1 comes last in 100 % of the steps"));
    EXPECT_THAT(analysis.headline, HasSubstr(by_data ? "(data wait)" : "(compute)"));
}
INSTANTIATE_TEST_SUITE_P(All, LateRank, ::testing::Combine(::testing::Bool(), ::testing::Bool()));

TEST(Analysis, RanksThatAreLateInTurnsAreNoStragglers) {
    SyntheticRun plan;
    plan.extra_forward_ns = [](int rank, int64_t step) { return rank == step % 2 ? 5 * kMs : 0; };
    const RunAnalysis analysis = analyze(make_synthetic_run(plan), kSkip);
    for (const RankSummary& rank : analysis.ranks) EXPECT_TRUE(rank.cause.empty());
    EXPECT_THAT(analysis.headline, HasSubstr("no single rank is to blame"));
}

TEST(Analysis, ShortRunsAreNotApplicable) {
    const RunAnalysis analysis = analyze(make_synthetic_run({.step_count = 3}), kSkip);
    EXPECT_EQ(analysis.common_steps, 3);
    EXPECT_FALSE(analysis.images_per_s || analysis.sync_efficiency || analysis.model || analysis.step_ms || analysis.typical_step);
    EXPECT_THAT(analysis.headline, HasSubstr("Too short to tell"));
}

TEST(Analysis, FirstStepsAfterAResumeAreSkippedToo) {
    RunRecords run = make_synthetic_run({.step_count = 20});
    for (RankRecords& rank : run.ranks) rank.session_starts = {0, 10};
    EXPECT_EQ(analyze(run, kSkip).steady_steps, 14);
}

TEST(Analysis, OneRankIsFullyEfficient) {
    const RunAnalysis analysis = analyze(make_synthetic_run({.rank_count = 1, .transfer_ns = {}}), kSkip);
    EXPECT_NEAR(*analysis.sync_efficiency, 1.0, 1e-12);
    EXPECT_FALSE(analysis.overlap_share.has_value());
    EXPECT_NEAR(*analysis.images_per_s, 32 / 0.032, 1e-6);
    EXPECT_THAT(analysis.headline, HasSubstr("Largest loss: optimizer"));
}

TEST(Analysis, EfficiencyStaysBetweenZeroAndOne) {
    for (const int64_t transfer_ms : {0, 1, 50, 5000}) {
        for (const int64_t compute_ms : {0, 1, 50}) {
            const SyntheticRun plan{.forward_ns = compute_ms * kMs,
                                    .backward_ns = compute_ms * kMs,
                                    .optimizer_ns = 0,
                                    .transfer_ns = {transfer_ms * kMs, transfer_ms * kMs}};
            const RunAnalysis analysis = analyze(make_synthetic_run(plan), kSkip);
            if (!analysis.sync_efficiency) continue;
            EXPECT_GE(*analysis.sync_efficiency, 0.0);
            EXPECT_LE(*analysis.sync_efficiency, 1.0);
        }
    }
}

TEST(Analysis, OnlyStepsOfAllRanksCount) {
    RunRecords run = make_synthetic_run({.step_count = 20});
    run.ranks[1].steps.resize(12);  // killed before its last flush
    run.ranks[0].steps.erase(run.ranks[0].steps.begin() + 5);
    const RunAnalysis analysis = analyze(run, kSkip);
    EXPECT_EQ(analysis.common_steps, 11);
    EXPECT_EQ(analysis.last_step, 11);
}

TEST(Analysis, HostsWithOtherClocksAreAligned) {
    const auto late = [](int rank, int64_t) { return rank == 1 ? 8 * kMs : 0; };
    SyntheticRun plan{.rank_count = 2, .records_arrival = false, .extra_forward_ns = late};
    RunRecords run = make_synthetic_run(plan);
    run.ranks[1].facts.host = "node1";
    for (StoredStep& step : run.ranks[1].steps) {
        constexpr int64_t kOffset = 77'777'777'777;
        step.begin_ns += kOffset;
        step.end_ns += kOffset;
        for (Span& span : step.spans) {
            span.begin_ns += kOffset;
            span.end_ns += kOffset;
        }
        for (BucketRecord& bucket : step.buckets) {
            for (int64_t* time : {&bucket.ready_ns, &bucket.start_ns, &bucket.end_ns}) *time += kOffset;
        }
    }
    align_clocks(run);
    ASSERT_TRUE(run.clock_error_ms.has_value());
    EXPECT_LT(*run.clock_error_ms, 1e-6);
    const RunAnalysis analysis = analyze(run, kSkip);
    EXPECT_NEAR((*analysis.ranks[0].mean_ms)[Part::arrival_wait], 8.0, 1e-6);
    EXPECT_EQ(analysis.ranks[1].cause, "compute");
}

TEST(Percentiles, AreValuesThatOccurred) {
    const Percentiles three = percentiles({3.0, 1.0, 2.0});
    EXPECT_EQ(three.p50, 2.0);
    EXPECT_EQ(three.p99, 3.0);
    EXPECT_EQ(percentiles({7.0}).p95, 7.0);
    EXPECT_EQ(median({4.0, 1.0, 3.0, 2.0}), 2.5);
}

}  // namespace
}  // namespace lockstep
