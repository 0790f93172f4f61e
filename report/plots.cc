#include "report/plots.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "report/svg.h"
#include "report/text.h"

namespace lockstep {

namespace {

constexpr size_t kRanksDrawn = 32;
constexpr size_t kTimelineRanks = 16;
constexpr size_t kBucketsDrawn = 64;
constexpr size_t kPointsDrawn = 480;
constexpr double kNsPerMs = 1e6;

std::string note(std::string_view text) { return fmt::format("<p class=\"note\">{}</p>", escape_markup(text)); }

std::string part_style(Part part) { return fmt::format("p-{}", part_key(part)); }

// Bins of neighbouring points: a long run stays a small picture and no spike gets lost.
struct ThinCurve {
    std::vector<double> x, low, mean, high;
};

ThinCurve thin(const std::vector<StepPoint>& points) {
    ThinCurve curve;
    const size_t bins = std::min(points.size(), kPointsDrawn);
    for (size_t bin = 0; bin < bins; ++bin) {
        const size_t begin = bin * points.size() / bins, end = (bin + 1) * points.size() / bins;
        double low = points[begin].wall_ms, high = low, sum = 0.0;
        for (size_t point = begin; point < end; ++point) {
            low = std::min(low, points[point].wall_ms);
            high = std::max(high, points[point].wall_ms);
            sum += points[point].wall_ms;
        }
        curve.x.push_back(static_cast<double>(points[(begin + end - 1) / 2].step));
        curve.low.push_back(low);
        curve.high.push_back(high);
        curve.mean.push_back(sum / static_cast<double>(end - begin));
    }
    return curve;
}

void draw_budget_row(Plot& plot, double top, std::string_view name, const PerPart<double>& ms, double step_ms) {
    constexpr double kHeight = 18;
    plot.label(56, top + 13, name, "axis end");
    double at_ms = 0.0;
    for (const Part part : kParts) {
        const std::string title =
            fmt::format("{}: {} {:.3f} ms, {:.1f} %", name, part_title(part), ms[part], 100.0 * ms[part] / std::max(step_ms, 1e-9));
        plot.bar({at_ms, at_ms + ms[part]}, top, kHeight, part_style(part), title);
        at_ms += ms[part];
    }
}

// By Span::Kind; an empty style is not drawn.
constexpr std::array<std::string_view, Span::kKinds> kSpanStyles = {"p-data_wait", "p-forward", "p-backward", "blocked",
                                                                    "p-optimizer", "",          "",           "blocked"};
constexpr std::array<std::string_view, Span::kKinds> kSpanNames = {"data wait", "forward", "backward", "blocked in finish",
                                                                   "optimizer", "",        "",         "update wait"};

void draw_timeline_rank(Plot& plot, const TimelineStep& entry, int64_t origin_ns, double top) {
    constexpr double kLane = 13;
    const auto ms = [&](int64_t time_ns) { return static_cast<double>(time_ns - origin_ns) / kNsPerMs; };
    const auto bar = [&](int64_t begin_ns, int64_t end_ns, int lane, std::string_view style, std::string_view name) {
        const std::string title =
            fmt::format("rank {}: {}, {:.3f} ms", entry.rank, name, static_cast<double>(end_ns - begin_ns) / kNsPerMs);
        plot.bar({ms(begin_ns), ms(end_ns)}, top + lane * kLane, kLane - 2, style, title);
    };
    plot.label(56, top + 1.5 * kLane + 3, fmt::format("rank {}", entry.rank), "axis end");
    for (const Span& span : entry.step.spans) {
        const auto kind = static_cast<size_t>(span.kind);
        const int lane = span.kind == Span::Kind::data_wait ? 2 : 0;
        if (!kSpanStyles[kind].empty()) bar(span.begin_ns, span.end_ns, lane, kSpanStyles[kind], kSpanNames[kind]);
    }
    for (const BucketTimes& bucket : entry.buckets) {
        bar(bucket.start_ns, bucket.arrived_ns, 1, "p-arrival_wait",
            fmt::format("bucket {} waits for the last rank", bucket.bucket));
        bar(bucket.arrived_ns, bucket.end_ns, 1, "transfer", fmt::format("bucket {} transfer", bucket.bucket));
    }
}

struct PointSeries {
    std::vector<double> x, y;
};

PointSeries metric_points(std::span<const MetricsLine> metrics, std::string_view key) {
    PointSeries all;
    for (const MetricsLine& line : metrics) {
        for (const auto& [name, value] : line.values) {
            if (name != key) continue;
            all.x.push_back(line.epoch);
            all.y.push_back(value);
        }
    }
    if (all.x.size() <= kPointsDrawn) return all;
    PointSeries thinned;
    for (size_t bin = 0; bin < kPointsDrawn; ++bin) {  // means of neighbours
        const size_t begin = bin * all.x.size() / kPointsDrawn, end = (bin + 1) * all.x.size() / kPointsDrawn;
        double x = 0.0, y = 0.0;
        for (size_t point = begin; point < end; ++point) {
            x += all.x[point];
            y += all.y[point];
        }
        thinned.x.push_back(x / static_cast<double>(end - begin));
        thinned.y.push_back(y / static_cast<double>(end - begin));
    }
    return thinned;
}

}  // namespace

std::string plot_budget(const RunAnalysis& analysis) {
    if (!analysis.mean_ms) return note("n/a: too few steps");
    const size_t shown = std::min(analysis.ranks.size(), kRanksDrawn);
    double longest_ms = *analysis.step_mean_ms;
    for (const RankSummary& rank : analysis.ranks) longest_ms = std::max(longest_ms, *rank.step_mean_ms);
    constexpr double kRow = 24;
    Plot plot(
        {.height = 52 + kRow * static_cast<double>(shown + 1), .x = {0.0, longest_ms}, .x_title = "ms per step", .y_ticks = false});
    draw_budget_row(plot, 14, "mean", *analysis.mean_ms, *analysis.step_mean_ms);
    for (size_t rank = 0; rank < shown; ++rank) {
        const RankSummary& summary = analysis.ranks[rank];
        draw_budget_row(plot, 14 + kRow * static_cast<double>(rank + 1), fmt::format("rank {}", summary.rank), *summary.mean_ms,
                        *summary.step_mean_ms);
    }
    const bool all = shown == analysis.ranks.size();
    return plot.finish() + (all ? "" : note(fmt::format("the first {} of {} ranks", shown, analysis.ranks.size())));
}

std::string plot_step_times(const RunAnalysis& analysis) {
    if (analysis.curve.empty()) return note("n/a: no step that all ranks have");
    const ThinCurve curve = thin(analysis.curve);
    double top_ms = std::ranges::max(curve.high);
    if (analysis.step_ms) top_ms = std::min(top_ms, 2.0 * analysis.step_ms->p99);  // the first steps do not flatten the rest
    Plot plot({.x = {curve.x.front(), curve.x.back()}, .y = {0.0, 1.1 * top_ms}, .x_title = "step", .y_title = "ms"});
    plot.band(curve.x, curve.low, curve.high, "band");
    plot.polyline(curve.x, curve.mean, "line");
    return plot.finish();
}

std::string plot_buckets(const RunAnalysis& analysis) {
    if (analysis.buckets.empty()) return note("n/a: no communication in the steady steps");
    const size_t shown = std::min(analysis.buckets.size(), kBucketsDrawn);
    double begin_ms = analysis.backward_begin_ms, end_ms = analysis.backward_end_ms;
    for (const BucketSummary& bucket : analysis.buckets) {
        begin_ms = std::min(begin_ms, bucket.ready_ms);
        end_ms = std::max(end_ms, bucket.end_ms);
    }
    constexpr double kRow = 20;
    const double margin_ms = 0.02 * (end_ms - begin_ms);
    const double rows_height = kRow * static_cast<double>(shown + 1);
    Plot plot({.height = 52 + rows_height,
               .x = {begin_ms - margin_ms, end_ms + margin_ms},
               .x_title = "ms since the step began (median)",
               .y_ticks = false});
    plot.bar({analysis.backward_begin_ms, analysis.backward_end_ms}, 14, rows_height, "shade", "backward");
    plot.label(56, 27, "backward", "axis end");
    plot.bar({analysis.backward_begin_ms, analysis.backward_end_ms}, 16, kRow - 6, "p-backward", "backward");
    for (size_t index = 0; index < shown; ++index) {
        const BucketSummary& bucket = analysis.buckets[index];
        const double top = 16 + kRow * static_cast<double>(index + 1);
        const std::string name = fmt::format("bucket {}", bucket.bucket);
        plot.label(56, top + 11, name, "axis end");
        plot.bar({bucket.ready_ms, bucket.start_ms}, top, kRow - 6, "queued", fmt::format("{} ready, not started", name));
        plot.bar({bucket.start_ms, bucket.arrived_ms}, top, kRow - 6, "p-arrival_wait",
                 fmt::format("{} waits for the last rank", name));
        plot.bar({bucket.arrived_ms, bucket.end_ms}, top, kRow - 6, "transfer",
                 fmt::format("{} transfer {:.3f} ms, hidden {}", name, bucket.transfer_ms, percent(bucket.hidden_share, 0)));
        plot.tick(bucket.ready_ms, top - 2, kRow - 2, "mark", fmt::format("{} ready at {:.3f} ms", name, bucket.ready_ms));
    }
    const bool all = shown == analysis.buckets.size();
    return plot.finish() + (all ? "" : note(fmt::format("the first {} of {} buckets", shown, analysis.buckets.size())));
}

std::string plot_timeline(std::span<const TimelineStep> steps) {
    if (steps.empty()) return note("n/a: no steady step");
    const size_t shown = std::min(steps.size(), kTimelineRanks);
    int64_t begin_ns = std::numeric_limits<int64_t>::max(), end_ns = 0;
    for (const TimelineStep& entry : steps) {
        begin_ns = std::min(begin_ns, entry.step.begin_ns);
        end_ns = std::max(end_ns, entry.step.end_ns);
    }
    constexpr double kRow = 48;
    Plot plot({.height = 52 + kRow * static_cast<double>(shown),
               .x = {0.0, static_cast<double>(end_ns - begin_ns) / kNsPerMs},
               .x_title = "ms; lanes of a rank: compute, communication, data",
               .y_ticks = false});
    for (size_t rank = 0; rank < shown; ++rank)
        draw_timeline_rank(plot, steps[rank], begin_ns, 16 + kRow * static_cast<double>(rank));
    const bool all = shown == steps.size();
    return plot.finish() + (all ? "" : note(fmt::format("the first {} of {} ranks", shown, steps.size())));
}

std::string plot_curves(std::span<const MetricsLine> metrics, std::span<const CurveSeries> series, std::string_view y_title) {
    std::vector<PointSeries> points;
    Range x{std::numeric_limits<double>::max(), std::numeric_limits<double>::lowest()}, y = x;
    for (const CurveSeries& one : series) {
        points.push_back(metric_points(metrics, one.key));
        for (const double value : points.back().x) x = {std::min(x.low, value), std::max(x.high, value)};
        for (const double value : points.back().y) y = {std::min(y.low, value), std::max(y.high, value)};
    }
    if (x.low > x.high) return note("n/a: nothing in metrics.jsonl");
    if (x.low == x.high) x = {x.low - 0.5, x.high + 0.5};
    const double margin = std::max(0.05 * (y.high - y.low), 1e-3 * std::abs(y.high) + 1e-12);
    Plot plot({.width = 340,
               .height = 210,
               .left = 48,
               .right = 10,
               .x = x,
               .y = {y.low - margin, y.high + margin},
               .x_title = "epoch",
               .y_title = y_title});
    for (size_t index = 0; index < points.size(); ++index) {
        if (!points[index].x.empty()) plot.polyline(points[index].x, points[index].y, series[index].style);
        for (size_t point = 0; point < points[index].x.size() && points[index].x.size() <= 40; ++point) {
            const double height = 5, top = plot.y_at(points[index].y[point]) - height / 2;
            plot.tick(points[index].x[point], top, height, fmt::format("dot {}", series[index].style),
                      fmt::format("{} {:.6g} at epoch {:.4g}", series[index].key, points[index].y[point], points[index].x[point]));
        }
    }
    return plot.finish();
}

bool has_metric(std::span<const MetricsLine> metrics, std::string_view key) {
    return std::ranges::any_of(metrics, [key](const MetricsLine& line) {
        return std::ranges::any_of(line.values, [key](const auto& value) { return value.first == key; });
    });
}

}  // namespace lockstep
