#include <algorithm>
#include <cmath>
#include <map>

#include "report/analysis.h"

namespace lockstep {

namespace {

// Step -> end of its last bucket.
std::map<int64_t, int64_t> last_bucket_ends(const RankRecords& records) {
    std::map<int64_t, int64_t> ends;
    for (const StoredStep& step : records.steps) {
        for (const BucketRecord& bucket : step.buckets) ends[step.step] = std::max(ends[step.step], bucket.end_ns);
    }
    return ends;
}

void shift_time(int64_t& time_ns, int64_t offset_ns) {
    if (time_ns != 0) time_ns -= offset_ns;
}

void shift_step(StoredStep& step, int64_t offset_ns) {
    shift_time(step.begin_ns, offset_ns);
    shift_time(step.end_ns, offset_ns);
    for (Span& span : step.spans) {
        shift_time(span.begin_ns, offset_ns);
        shift_time(span.end_ns, offset_ns);
    }
    for (BucketRecord& bucket : step.buckets) {
        for (int64_t* time_ns : {&bucket.ready_ns, &bucket.start_ns, &bucket.arrived_ns, &bucket.end_ns})
            shift_time(*time_ns, offset_ns);
    }
}

// Start of the session a step belongs to: clocks restart with a machine.
int64_t session_of(const RankRecords& records, int64_t step) {
    const auto after = std::ranges::upper_bound(records.session_starts, step);
    return after == records.session_starts.begin() ? 0 : *std::prev(after);
}

struct Offset {
    int64_t median_ns = 0;
    double residual_ns = 0.0;
};

// Offset of `records`' clock to the reference, by session.
std::map<int64_t, Offset> offsets_to(const std::map<int64_t, int64_t>& reference_ends, const RankRecords& records) {
    std::map<int64_t, std::vector<double>> differences;
    for (const auto& [step, end_ns] : last_bucket_ends(records)) {
        const auto reference = reference_ends.find(step);
        if (reference == reference_ends.end()) continue;
        differences[session_of(records, step)].push_back(static_cast<double>(end_ns - reference->second));
    }
    std::map<int64_t, Offset> offsets;
    for (auto& [session, values] : differences) {
        const double middle_ns = median(values);
        for (double& value : values) value = std::abs(value - middle_ns);
        offsets[session] = {static_cast<int64_t>(middle_ns), percentiles(values).p95};
    }
    return offsets;
}

}  // namespace

void align_clocks(RunRecords& run) {
    const std::string& first_host = run.ranks.front().facts.host;
    const auto ends = last_bucket_ends(run.ranks.front());
    std::map<std::string, std::map<int64_t, Offset>> by_host;  // one clock per host: its first rank speaks for all
    for (RankRecords& records : run.ranks) {
        if (records.facts.host == first_host) continue;
        auto known = by_host.find(records.facts.host);
        if (known == by_host.end()) known = by_host.emplace(records.facts.host, offsets_to(ends, records)).first;
        double& error_ms = run.clock_error_ms.emplace(run.clock_error_ms.value_or(0.0));
        for (const auto& [session, offset] : known->second) error_ms = std::max(error_ms, offset.residual_ns / 1e6);
        for (StoredStep& step : records.steps) {
            const auto offset = known->second.find(session_of(records, step.step));
            if (offset != known->second.end()) shift_step(step, offset->second.median_ns);
        }
        for (StoredPause& pause : records.pauses) {
            const auto offset = known->second.find(session_of(records, pause.next_step));
            if (offset == known->second.end()) continue;
            pause.span.begin_ns -= offset->second.median_ns;
            pause.span.end_ns -= offset->second.median_ns;
        }
    }
}

}  // namespace lockstep
