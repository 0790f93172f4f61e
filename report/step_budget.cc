#include "report/step_budget.h"

#include <algorithm>

namespace lockstep {

namespace {

constexpr std::array<std::string_view, kPartCount> kKeys = {"data_wait",    "forward",   "backward", "exposed_transfer",
                                                            "arrival_wait", "optimizer", "other"};
constexpr std::array<std::string_view, kPartCount> kTitles = {"data wait",    "forward",   "backward", "exposed transfer",
                                                              "arrival wait", "optimizer", "other"};

IntervalSet spans_of_kind(const StoredStep& step, Span::Kind kind) {
    std::vector<Interval> intervals;
    for (const Span& span : step.spans) {
        if (span.kind == kind) intervals.push_back({span.begin_ns, span.end_ns});
    }
    return merged(std::move(intervals));
}

// Hands out time: each part takes what is left of what it claims.
class Remainder {
public:
    explicit Remainder(IntervalSet all) : left_(std::move(all)) {}
    int64_t take(const IntervalSet& claim) {
        const int64_t before_ns = length_ns(left_);
        left_ = difference(left_, claim);
        return before_ns - length_ns(left_);
    }
    int64_t take_rest() { return length_ns(std::exchange(left_, {})); }

private:
    IntervalSet left_;
};

}  // namespace

std::string_view part_key(Part part) { return kKeys[static_cast<size_t>(part)]; }
std::string_view part_title(Part part) { return kTitles[static_cast<size_t>(part)]; }

std::vector<BucketTimes> bucket_times(const StoredStep& step, std::span<const int64_t> derived_arrival_ns) {
    std::vector<BucketTimes> times;
    times.reserve(step.buckets.size());
    for (const BucketRecord& record : step.buckets) {
        if (record.start_ns == 0 || record.end_ns < record.start_ns) continue;
        const auto index = static_cast<size_t>(record.bucket);
        int64_t arrived_ns = record.arrived_ns;
        if (arrived_ns == 0 && index < derived_arrival_ns.size()) arrived_ns = derived_arrival_ns[index];
        times.push_back({record.bucket, record.ready_ns == 0 ? record.start_ns : std::min(record.ready_ns, record.start_ns),
                         record.start_ns, std::clamp(arrived_ns, record.start_ns, record.end_ns), record.end_ns});
    }
    return times;
}

IntervalSet compute_of_step(const StoredStep& step) {
    return united(united(spans_of_kind(step, Span::Kind::forward), spans_of_kind(step, Span::Kind::backward)),
                  spans_of_kind(step, Span::Kind::optimizer));
}

StepBudget budget_of_step(const StoredStep& step, std::span<const BucketTimes> buckets, std::span<const Span> pauses) {
    std::vector<Interval> pause_intervals, transfer_intervals, wait_intervals;
    for (const Span& pause : pauses) pause_intervals.push_back({pause.begin_ns, pause.end_ns});
    for (const BucketTimes& bucket : buckets) {
        wait_intervals.push_back({bucket.start_ns, bucket.arrived_ns});
        transfer_intervals.push_back({bucket.arrived_ns, bucket.end_ns});
    }
    const IntervalSet wall = difference(merged({{step.begin_ns, step.end_ns}}), merged(std::move(pause_intervals)));
    const IntervalSet transfer = intersection(merged(std::move(transfer_intervals)), wall);

    StepBudget budget;
    budget.wall_ns = length_ns(wall);
    budget.transfer_ns = length_ns(transfer);
    budget.hidden_transfer_ns = length_ns(intersection(transfer, compute_of_step(step)));
    Remainder remainder(wall);
    budget.part_ns[Part::forward] = remainder.take(spans_of_kind(step, Span::Kind::forward));
    budget.part_ns[Part::backward] = remainder.take(spans_of_kind(step, Span::Kind::backward));
    budget.part_ns[Part::optimizer] = remainder.take(spans_of_kind(step, Span::Kind::optimizer));
    budget.part_ns[Part::exposed_transfer] = remainder.take(transfer);
    budget.part_ns[Part::arrival_wait] =
        remainder.take(united(merged(std::move(wait_intervals)), spans_of_kind(step, Span::Kind::update_wait)));
    budget.part_ns[Part::data_wait] = remainder.take(spans_of_kind(step, Span::Kind::data_wait));
    budget.part_ns[Part::other] = remainder.take_rest();
    return budget;
}

}  // namespace lockstep
