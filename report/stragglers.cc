#include "report/stragglers.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "report/analysis.h"

namespace lockstep {

namespace {

struct Start {
    size_t rank = 0;
    int64_t start_ns = 0;
};

// Median of f(rank) over all ranks but `rank`.
template <typename Value>
double median_of_others(std::span<const RankStep> ranks, size_t rank, Value value) {
    std::vector<double> others;
    for (size_t peer = 0; peer < ranks.size(); ++peer) {
        if (peer != rank) others.push_back(static_cast<double>(value(ranks[peer])));
    }
    return median(std::move(others));
}

template <typename Value>
double excess(std::span<const RankStep> ranks, size_t rank, Value value) {
    return static_cast<double>(value(ranks[rank])) - median_of_others(ranks, rank, value);
}

// For each rank the longest time by which it delayed a bucket as the last one. Not the sum: one late begin delays many buckets.
std::vector<double> lateness_of_ranks(std::span<const RankStep> ranks) {
    std::map<int32_t, std::vector<Start>> starts;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        for (const BucketTimes& bucket : ranks[rank].buckets) starts[bucket.bucket].push_back({rank, bucket.start_ns});
    }
    std::vector<double> lateness_ns(ranks.size(), 0.0);
    for (auto& [bucket, arrivals] : starts) {
        if (arrivals.size() < 2) continue;
        std::ranges::sort(arrivals, {}, &Start::start_ns);
        const Start last = arrivals.back();
        std::vector<double> others;
        for (size_t index = 0; index + 1 < arrivals.size(); ++index)
            others.push_back(static_cast<double>(arrivals[index].start_ns));
        const double late_ns = static_cast<double>(last.start_ns) - median(std::move(others));
        lateness_ns[last.rank] = std::max(lateness_ns[last.rank], late_ns);
    }
    return lateness_ns;
}

}  // namespace

void StragglerFinder::add(std::span<const RankStep> ranks) {
    if (ranks.size() < 2) return;
    const std::vector<double> lateness_ns = lateness_of_ranks(ranks);
    const auto latest = std::ranges::max_element(lateness_ns);
    if (*latest <= 0.0) return;
    const auto rank = static_cast<size_t>(latest - lateness_ns.begin());
    const auto part = [](Part which) { return [which](const RankStep& step) { return step.budget.part_ns[which]; }; };

    ++steps_;
    Tally& tally = ranks_[rank];
    ++tally.times_last;
    tally.lateness_ns += *latest;
    tally.excess.data_wait_ns += excess(ranks, rank, part(Part::data_wait));
    tally.excess.compute_ns += excess(ranks, rank, part(Part::forward)) + excess(ranks, rank, part(Part::backward));
    tally.excess.optimizer_ns += excess(ranks, rank, part(Part::optimizer));
    tally.excess.other_ns += excess(ranks, rank, part(Part::other));
    tally.excess.late_begin_ns += excess(ranks, rank, [](const RankStep& step) { return step.begin_ns; });
}

std::string StragglerFinder::cause(const Tally& tally) {
    const std::array<std::pair<double, const char*>, 5> causes = {{
        {tally.excess.data_wait_ns, "data wait"},
        {tally.excess.compute_ns, "compute"},
        {tally.excess.optimizer_ns, "optimizer"},
        {tally.excess.late_begin_ns, "late begin: a pause or the end of the step before"},
        {tally.excess.other_ns, "other: the rank was not running"},
    }};
    const auto& [most_ns, name] = *std::ranges::max_element(causes, {}, [](const auto& entry) { return entry.first; });
    constexpr double kExplains = 0.3;  // of the lateness; less is no explanation
    return most_ns >= kExplains * tally.lateness_ns ? name : "unknown: its own work took no longer than the others'";
}

std::optional<std::vector<Straggler>> StragglerFinder::result(double step_ns) const {
    if (steps_ == 0) return std::nullopt;
    // By chance each rank is last in 1 / p of the steps; noticeably more, and by at least 1 % of the step, is worth a name.
    const double named_share = 1.0 / static_cast<double>(ranks_.size()) + 0.25;
    constexpr double kNamedLateness = 0.01;
    std::vector<Straggler> stragglers;
    for (const Tally& tally : ranks_) {
        Straggler straggler;
        if (tally.times_last > 0) {
            straggler.last_share = static_cast<double>(tally.times_last) / static_cast<double>(steps_);
            straggler.mean_lateness_ns = tally.lateness_ns / static_cast<double>(tally.times_last);
        }
        const bool often = straggler.last_share >= named_share;
        const bool long_enough = straggler.last_share * straggler.mean_lateness_ns >= kNamedLateness * step_ns;
        if (often && long_enough) straggler.cause = cause(tally);
        stragglers.push_back(std::move(straggler));
    }
    return stragglers;
}

}  // namespace lockstep
