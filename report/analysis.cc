#include "report/analysis.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "core/error.h"
#include "report/losses.h"
#include "report/stragglers.h"

namespace lockstep {

namespace {

constexpr double kNsPerMs = 1e6;

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
double mean_of(const std::vector<double>& values) { return sum_of(values) / static_cast<double>(values.size()); }

// One step of all present ranks, in the order of RunRecords::ranks.
struct CommonStep {
    int64_t step = 0;
    bool steady = false;
    std::vector<const StoredStep*> ranks;
};

bool is_steady(const RankRecords& records, int64_t step, int64_t skip_first_steps) {
    const auto after = std::ranges::upper_bound(records.session_starts, step);
    const int64_t start = after == records.session_starts.begin() ? 0 : *std::prev(after);
    return step - start >= skip_first_steps;
}

std::vector<CommonStep> find_common_steps(const RunRecords& run, int64_t skip_first_steps) {
    std::vector<CommonStep> steps;
    std::vector<size_t> at(run.ranks.size(), 0);
    for (const StoredStep& first : run.ranks.front().steps) {
        CommonStep common{first.step, is_steady(run.ranks.front(), first.step, skip_first_steps), {}};
        for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
            const auto& mine = run.ranks[rank].steps;
            while (at[rank] < mine.size() && mine[at[rank]].step < first.step) ++at[rank];
            if (at[rank] < mine.size() && mine[at[rank]].step == first.step) common.ranks.push_back(&mine[at[rank]]);
        }
        if (common.ranks.size() == run.ranks.size()) steps.push_back(std::move(common));
    }
    return steps;
}

std::vector<int64_t> latest_starts(const CommonStep& step) {
    std::vector<int64_t> latest_ns;
    for (const StoredStep* mine : step.ranks) {
        for (const BucketRecord& bucket : mine->buckets) {
            const auto index = static_cast<size_t>(bucket.bucket);
            if (latest_ns.size() <= index) latest_ns.resize(index + 1, 0);
            latest_ns[index] = std::max(latest_ns[index], bucket.start_ns);
        }
    }
    return latest_ns;
}

std::vector<Span> pauses_before(const RankRecords& records, int64_t step) {
    std::vector<Span> pauses;
    const auto range = std::ranges::equal_range(records.pauses, step, {}, &StoredPause::next_step);
    for (const StoredPause& pause : range) pauses.push_back(pause.span);
    return pauses;
}

std::vector<RankStep> rank_steps(const RunRecords& run, const CommonStep& step) {
    const std::vector<int64_t> derived_ns = latest_starts(step);
    std::vector<RankStep> ranks;
    for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
        const StoredStep& mine = *step.ranks[rank];
        RankStep view{mine.begin_ns, {}, bucket_times(mine, derived_ns)};
        view.budget = budget_of_step(mine, view.buckets, pauses_before(run.ranks[rank], step.step));
        ranks.push_back(std::move(view));
    }
    return ranks;
}

// Per bucket and steady step the mean over ranks, in ms; and sums of what hides.
struct BucketSeries {
    std::vector<double> ready, start, arrived, end, wait, transfer;
    double transfer_ns = 0.0, exposed_ns = 0.0, exposed_wait_ns = 0.0;
};

class BucketCollector {
public:
    void add(const CommonStep& step, const std::vector<RankStep>& ranks) {
        std::map<int32_t, std::vector<std::pair<size_t, BucketTimes>>> by_bucket;
        std::vector<IntervalSet> compute;
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
            compute.push_back(compute_of_step(*step.ranks[rank]));
            for (const BucketTimes& bucket : ranks[rank].buckets) by_bucket[bucket.bucket].emplace_back(rank, bucket);
        }
        for (const auto& [bucket, times] : by_bucket) add_bucket(series_[bucket], times, ranks, compute);
    }

    const std::map<int32_t, BucketSeries>& series() const { return series_; }

    WorstBuckets worst() const {
        WorstBuckets worst;
        double most_wait_ns = 0.0, most_exposed_ns = 0.0;
        for (const auto& [bucket, series] : series_) {
            if (series.exposed_wait_ns > most_wait_ns) {
                most_wait_ns = series.exposed_wait_ns;
                worst.waited_for = bucket;
            }
            if (series.exposed_ns > most_exposed_ns) {
                most_exposed_ns = series.exposed_ns;
                worst.exposed = bucket;
            }
        }
        return worst;
    }

private:
    static void add_bucket(BucketSeries& series, const std::vector<std::pair<size_t, BucketTimes>>& times,
                           const std::vector<RankStep>& ranks, const std::vector<IntervalSet>& compute) {
        const auto mean_ms = [&](auto value) {
            double total_ns = 0.0;
            for (const auto& [rank, bucket] : times) total_ns += static_cast<double>(value(rank, bucket));
            return total_ns / kNsPerMs / static_cast<double>(times.size());
        };
        series.ready.push_back(mean_ms([&](size_t rank, const BucketTimes& b) { return b.ready_ns - ranks[rank].begin_ns; }));
        series.start.push_back(mean_ms([&](size_t rank, const BucketTimes& b) { return b.start_ns - ranks[rank].begin_ns; }));
        series.arrived.push_back(mean_ms([&](size_t rank, const BucketTimes& b) { return b.arrived_ns - ranks[rank].begin_ns; }));
        series.end.push_back(mean_ms([&](size_t rank, const BucketTimes& b) { return b.end_ns - ranks[rank].begin_ns; }));
        series.wait.push_back(mean_ms([](size_t, const BucketTimes& b) { return b.arrived_ns - b.start_ns; }));
        series.transfer.push_back(mean_ms([](size_t, const BucketTimes& b) { return b.end_ns - b.arrived_ns; }));
        for (const auto& [rank, bucket] : times) {
            const IntervalSet transfer = merged({{bucket.arrived_ns, bucket.end_ns}});
            const IntervalSet wait = merged({{bucket.start_ns, bucket.arrived_ns}});
            series.transfer_ns += static_cast<double>(length_ns(transfer));
            series.exposed_ns += static_cast<double>(length_ns(difference(transfer, compute[rank])));
            series.exposed_wait_ns += static_cast<double>(length_ns(difference(wait, compute[rank])));
        }
    }

    std::map<int32_t, BucketSeries> series_;
};

BucketSummary summarize_bucket(int32_t bucket, const BucketSeries& series, const RunFacts& facts) {
    BucketSummary summary{.bucket = bucket};
    if (static_cast<size_t>(bucket) < facts.buckets.size()) summary.info = facts.buckets[static_cast<size_t>(bucket)];
    summary.ready_ms = median(series.ready);
    summary.start_ms = median(series.start);
    summary.arrived_ms = median(series.arrived);
    summary.end_ms = median(series.end);
    summary.wait_ms = median(series.wait);
    summary.transfer_ms = median(series.transfer);
    if (series.transfer_ns > 0.0) summary.hidden_share = 1.0 - series.exposed_ns / series.transfer_ns;
    if (summary.transfer_ms > 0.0 && facts.world_size > 1 && summary.info.bytes > 0) {
        summary.algbw_gb_per_s = static_cast<double>(summary.info.bytes) / (summary.transfer_ms * kNsPerMs);  // bytes/ns = GB/s
        summary.busbw_gb_per_s = *summary.algbw_gb_per_s * 2.0 * (facts.world_size - 1) / facts.world_size;
    }
    return summary;
}

// Sums over the steady steps of one rank.
struct RankTally {
    int64_t images = 0;
    double wall_ns = 0.0;
    PerPart<double> part_ns;
    std::vector<double> wall_ms;
};

struct Tallies {
    std::vector<RankTally> ranks;
    BucketCollector buckets;
    StragglerFinder stragglers;
    std::vector<double> step_ms;  // of the slowest rank
    double transfer_ns = 0.0, hidden_transfer_ns = 0.0;

    std::vector<double> backward_begin_ms, backward_end_ms;  // means over ranks

    explicit Tallies(size_t rank_count) : ranks(rank_count), stragglers(rank_count) {}

    void add_backward(const CommonStep& step) {
        double begin_ms = 0.0, end_ms = 0.0;
        for (const StoredStep* mine : step.ranks) {
            int64_t begin_ns = mine->end_ns, end_ns = mine->begin_ns;
            for (const Span& span : mine->spans) {
                if (span.kind != Span::Kind::backward) continue;
                begin_ns = std::min(begin_ns, span.begin_ns);
                end_ns = std::max(end_ns, span.end_ns);
            }
            begin_ms += static_cast<double>(begin_ns - mine->begin_ns) / kNsPerMs;
            end_ms += static_cast<double>(end_ns - mine->begin_ns) / kNsPerMs;
        }
        backward_begin_ms.push_back(begin_ms / static_cast<double>(step.ranks.size()));
        backward_end_ms.push_back(end_ms / static_cast<double>(step.ranks.size()));
    }

    void add(const CommonStep& step, const std::vector<RankStep>& views, double wall_ms) {
        for (size_t rank = 0; rank < views.size(); ++rank) {
            const StepBudget& budget = views[rank].budget;
            RankTally& tally = ranks[rank];
            tally.images += step.ranks[rank]->images;
            tally.wall_ns += static_cast<double>(budget.wall_ns);
            tally.wall_ms.push_back(static_cast<double>(budget.wall_ns) / kNsPerMs);
            for (const Part part : kParts) tally.part_ns[part] += static_cast<double>(budget.part_ns[part]);
            transfer_ns += static_cast<double>(budget.transfer_ns);
            hidden_transfer_ns += static_cast<double>(budget.hidden_transfer_ns);
        }
        step_ms.push_back(wall_ms);
        add_backward(step);
        buckets.add(step, views);
        stragglers.add(views);
    }
};

void fill_rank(RankSummary& rank, const RankTally& tally, int64_t steady_steps) {
    const double steps = static_cast<double>(steady_steps);
    rank.images = tally.images;
    if (tally.wall_ns > 0.0) rank.images_per_s = static_cast<double>(tally.images) / (tally.wall_ns / 1e9);
    rank.step_ms = percentiles(tally.wall_ms);
    rank.step_mean_ms = tally.wall_ns / kNsPerMs / steps;
    rank.mean_ms.emplace();
    for (const Part part : kParts) (*rank.mean_ms)[part] = tally.part_ns[part] / kNsPerMs / steps;
}

void fill_means(RunAnalysis& analysis) {
    std::vector<double> step_ms;
    for (const RankSummary& rank : analysis.ranks) step_ms.push_back(*rank.step_mean_ms);
    analysis.step_mean_ms = mean_of(step_ms);
    analysis.mean_ms.emplace();
    analysis.sd_ms.emplace();
    for (const Part part : kParts) {
        std::vector<double> values;
        for (const RankSummary& rank : analysis.ranks) values.push_back((*rank.mean_ms)[part]);
        const double mean = mean_of(values);
        double squares = 0.0;
        for (const double value : values) squares += (value - mean) * (value - mean);
        (*analysis.mean_ms)[part] = mean;
        (*analysis.sd_ms)[part] = std::sqrt(squares / static_cast<double>(values.size()));
    }
}

void fill_efficiency(RunAnalysis& analysis, const Tallies& tallies) {
    if (*analysis.step_mean_ms <= 0.0) return;
    const PerPart<double>& mean = *analysis.mean_ms;
    analysis.exposed_transfer_share = mean[Part::exposed_transfer] / *analysis.step_mean_ms;
    analysis.arrival_wait_share = mean[Part::arrival_wait] / *analysis.step_mean_ms;
    analysis.sync_efficiency = std::clamp(1.0 - *analysis.exposed_transfer_share - *analysis.arrival_wait_share, 0.0, 1.0);
    if (tallies.transfer_ns > 0.0) analysis.overlap_share = tallies.hidden_transfer_ns / tallies.transfer_ns;

    SyncModel model{.forward_ms = mean[Part::forward], .backward_ms = mean[Part::backward]};
    if (model.forward_ms + model.backward_ms <= 0.0) return;
    for (const BucketInfo& bucket : analysis.facts.buckets) model.gradient_bytes += bucket.bytes;
    const double rank_steps = static_cast<double>(analysis.steady_steps) * static_cast<double>(analysis.ranks.size());
    const double transfer_ms = tallies.transfer_ns / kNsPerMs / rank_steps;  // M / B
    if (transfer_ms > 0.0) model.bandwidth_gb_per_s = static_cast<double>(model.gradient_bytes) / (transfer_ms * kNsPerMs);
    model.efficiency = (model.forward_ms + model.backward_ms) / (model.forward_ms + std::max(model.backward_ms, transfer_ms));
    analysis.model = model;
}

void fill_stragglers(RunAnalysis& analysis, const StragglerFinder& finder) {
    const auto stragglers = finder.result(*analysis.step_mean_ms * kNsPerMs);
    if (!stragglers) return;
    for (size_t rank = 0; rank < analysis.ranks.size(); ++rank) {
        analysis.ranks[rank].last_share = (*stragglers)[rank].last_share;
        analysis.ranks[rank].mean_lateness_ms = (*stragglers)[rank].mean_lateness_ns / kNsPerMs;
        analysis.ranks[rank].cause = (*stragglers)[rank].cause;
    }
}

// The steady step of lower-median length.
int64_t typical_step_of(const std::vector<StepPoint>& steady) {
    std::vector<StepPoint> sorted(steady);
    const auto middle = sorted.begin() + static_cast<int64_t>((sorted.size() - 1) / 2);
    std::ranges::nth_element(sorted, middle, {}, &StepPoint::wall_ms);
    return middle->step;
}

void fill_window(RunAnalysis& analysis, int64_t steady_steps) {
    analysis.common_steps = static_cast<int64_t>(analysis.curve.size());
    analysis.steady_steps = steady_steps;
    analysis.skipped_steps = analysis.common_steps - steady_steps;
    if (analysis.curve.empty()) return;
    analysis.first_step = analysis.curve.front().step;
    analysis.last_step = analysis.curve.back().step;
}

void fill_steady(RunAnalysis& analysis, const Tallies& tallies) {
    int64_t images = 0;
    double longest_ns = 0.0;  // the slowest rank's time is the run's time
    for (size_t rank = 0; rank < analysis.ranks.size(); ++rank) {
        fill_rank(analysis.ranks[rank], tallies.ranks[rank], analysis.steady_steps);
        images += tallies.ranks[rank].images;
        longest_ns = std::max(longest_ns, tallies.ranks[rank].wall_ns);
    }
    if (longest_ns > 0.0) analysis.images_per_s = static_cast<double>(images) / (longest_ns / 1e9);
    analysis.step_ms = percentiles(tallies.step_ms);
    analysis.backward_begin_ms = median(tallies.backward_begin_ms);
    analysis.backward_end_ms = median(tallies.backward_end_ms);
    fill_means(analysis);
    fill_efficiency(analysis, tallies);
    fill_stragglers(analysis, tallies.stragglers);
    for (const auto& [bucket, series] : tallies.buckets.series()) {
        analysis.buckets.push_back(summarize_bucket(bucket, series, analysis.facts));
    }
    analysis.losses = rank_losses(analysis, tallies.buckets.worst());
}

std::vector<PauseSummary> summarize_pauses(const RunRecords& run) {
    std::vector<PauseSummary> summaries;
    for (const Span::Kind kind : {Span::Kind::evaluation, Span::Kind::checkpoint}) {
        PauseSummary most{.kind = kind};
        for (const RankRecords& records : run.ranks) {
            PauseSummary mine{.kind = kind};
            for (const StoredPause& pause : records.pauses) {
                if (pause.span.kind != kind) continue;
                ++mine.count;
                mine.total_s += static_cast<double>(pause.span.end_ns - pause.span.begin_ns) / 1e9;
            }
            if (mine.total_s > most.total_s) most = mine;
        }
        if (most.count > 0) summaries.push_back(most);
    }
    return summaries;
}

}  // namespace

Percentiles percentiles(std::vector<double> values) {
    check(!values.empty(), "percentiles need values");
    std::ranges::sort(values);
    const auto at = [&](double share) {
        const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
        return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
    };
    return {at(0.50), at(0.95), at(0.99)};
}

double median(std::vector<double> values) {
    check(!values.empty(), "a median needs values");
    const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    if (values.size() % 2 == 1) return *middle;
    return 0.5 * (*middle + *std::max_element(values.begin(), middle));
}

RunAnalysis analyze(const RunRecords& run, int64_t skip_first_steps) {
    RunAnalysis analysis{.facts = run.ranks.front().facts, .missing_ranks = run.missing_ranks, .warnings = run.warnings};
    analysis.clock_error_ms = run.clock_error_ms;
    for (const RankRecords& records : run.ranks) {
        const auto steps = static_cast<int64_t>(records.steps.size());
        analysis.ranks.push_back({.rank = records.facts.rank, .host = records.facts.host, .steps = steps});
    }
    Tallies tallies(run.ranks.size());
    std::vector<StepPoint> steady;
    for (const CommonStep& step : find_common_steps(run, skip_first_steps)) {
        const std::vector<RankStep> views = rank_steps(run, step);
        int64_t wall_ns = 0;
        for (const RankStep& view : views) wall_ns = std::max(wall_ns, view.budget.wall_ns);
        const StepPoint point{step.step, static_cast<double>(wall_ns) / kNsPerMs};
        analysis.curve.push_back(point);
        if (!step.steady) continue;
        steady.push_back(point);
        tallies.add(step, views, point.wall_ms);
    }
    fill_window(analysis, static_cast<int64_t>(steady.size()));
    analysis.pauses = summarize_pauses(run);
    if (!steady.empty()) {
        analysis.typical_step = typical_step_of(steady);
        fill_steady(analysis, tallies);
    }
    analysis.headline = headline_sentence(analysis, skip_first_steps);
    return analysis;
}

std::vector<TimelineStep> timeline_of(const RunRecords& run, int64_t first_step, int64_t last_step) {
    std::vector<TimelineStep> timeline;
    for (const CommonStep& step : find_common_steps(run, 0)) {
        if (step.step < first_step || step.step > last_step) continue;
        const std::vector<int64_t> derived_ns = latest_starts(step);
        for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
            const StoredStep& mine = *step.ranks[rank];
            timeline.push_back(
                {run.ranks[rank].facts.rank, mine, bucket_times(mine, derived_ns), pauses_before(run.ranks[rank], step.step)});
        }
    }
    return timeline;
}

}  // namespace lockstep
