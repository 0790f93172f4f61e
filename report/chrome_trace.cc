#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "core/json_text.h"
#include "report/outputs.h"
#include "report/text.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

enum Thread : int { kStepThread = 0, kComputeThread = 1, kCommunicationThread = 2, kDataThread = 3 };
constexpr std::array<std::string_view, 4> kThreadNames = {"step", "compute", "communication", "data"};
constexpr std::array<std::string_view, Span::kKinds> kSpanNames = {"data wait", "forward",    "backward",   "finish wait",
                                                                   "optimizer", "evaluation", "checkpoint", "update wait"};

// Collects events in the text form of Chrome's trace format, one a line.
class TraceWriter {
public:
    explicit TraceWriter(int64_t origin_ns) : origin_ns_(origin_ns) {}

    void slice(int rank, Thread thread, std::string_view name, int64_t begin_ns, int64_t end_ns, Json arguments = Json::object()) {
        if (end_ns <= begin_ns) return;
        add({{"name", name},
             {"ph", "X"},
             {"pid", rank},
             {"tid", thread},
             {"ts", microseconds(begin_ns - origin_ns_)},
             {"dur", microseconds(end_ns - begin_ns)},
             {"args", std::move(arguments)}});
    }
    void instant(int rank, Thread thread, std::string_view name, int64_t time_ns) {
        add({{"name", name}, {"ph", "i"}, {"s", "t"}, {"pid", rank}, {"tid", thread}, {"ts", microseconds(time_ns - origin_ns_)}});
    }
    void metadata(int rank, int thread, std::string_view name, Json arguments) {
        add({{"name", name}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", std::move(arguments)}});
    }
    std::string finish() { return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events_ + "\n]}\n"; }

private:
    static double microseconds(int64_t time_ns) { return static_cast<double>(time_ns) / 1e3; }
    void add(const Json& event) {
        if (!events_.empty()) events_ += ",\n";
        events_ += json_text(event);
    }

    int64_t origin_ns_;
    std::string events_;
};

void add_names(TraceWriter& trace, const RankSummary& rank) {
    const std::string host = rank.host.empty() ? "" : fmt::format(" ({})", rank.host);
    trace.metadata(rank.rank, 0, "process_name", {{"name", fmt::format("rank {}{}", rank.rank, host)}});
    trace.metadata(rank.rank, 0, "process_sort_index", {{"sort_index", rank.rank}});
    for (int thread = kStepThread; thread <= kDataThread; ++thread) {
        trace.metadata(rank.rank, thread, "thread_name", {{"name", kThreadNames[static_cast<size_t>(thread)]}});
        trace.metadata(rank.rank, thread, "thread_sort_index", {{"sort_index", thread}});
    }
}

void add_step(TraceWriter& trace, const TimelineStep& entry) {
    const StoredStep& step = entry.step;
    for (const Span& pause : entry.pauses)
        trace.slice(entry.rank, kStepThread, pause_name(pause.kind), pause.begin_ns, pause.end_ns);
    trace.slice(entry.rank, kStepThread, fmt::format("step {}", step.step), step.begin_ns, step.end_ns, {{"images", step.images}});
    for (const Span& span : step.spans) {
        const Thread thread = span.kind == Span::Kind::data_wait ? kDataThread : kComputeThread;
        trace.slice(entry.rank, thread, kSpanNames[static_cast<size_t>(span.kind)], span.begin_ns, span.end_ns);
    }
    for (const BucketTimes& bucket : entry.buckets) {
        const Json arguments = {{"bucket", bucket.bucket}, {"step", step.step}};
        trace.instant(entry.rank, kCommunicationThread, fmt::format("bucket {} ready", bucket.bucket), bucket.ready_ns);
        trace.slice(entry.rank, kCommunicationThread, fmt::format("bucket {} waits for the last rank", bucket.bucket),
                    bucket.start_ns, bucket.arrived_ns, arguments);
        trace.slice(entry.rank, kCommunicationThread, fmt::format("bucket {} transfer", bucket.bucket), bucket.arrived_ns,
                    bucket.end_ns, arguments);
    }
}

}  // namespace

std::string chrome_trace(std::span<const TimelineStep> timeline, std::span<const RankSummary> ranks) {
    int64_t origin_ns = std::numeric_limits<int64_t>::max();
    for (const TimelineStep& entry : timeline) {
        origin_ns = std::min(origin_ns, entry.step.begin_ns);
        for (const Span& pause : entry.pauses) origin_ns = std::min(origin_ns, pause.begin_ns);
    }
    TraceWriter trace(timeline.empty() ? 0 : origin_ns);
    for (const RankSummary& rank : ranks) add_names(trace, rank);
    for (const TimelineStep& entry : timeline) add_step(trace, entry);
    return trace.finish();
}

}  // namespace lockstep
