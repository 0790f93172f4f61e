// The report's pictures. Each returns one <svg>, or a short note where the run gives nothing to draw.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/analysis.h"
#include "report/records.h"

namespace lockstep {

std::string plot_budget(const RunAnalysis& analysis);      // stacked bar: mean and ranks
std::string plot_step_times(const RunAnalysis& analysis);  // per step, thinned to min / mean / max
std::string plot_buckets(const RunAnalysis& analysis);     // ready, waiting, transfer against backward
std::string plot_timeline(std::span<const TimelineStep> steps);

struct CurveSeries {
    std::string_view key;    // of the metrics line
    std::string_view style;  // class of the line
};
std::string plot_curves(std::span<const MetricsLine> metrics, std::span<const CurveSeries> series, std::string_view y_title);
bool has_metric(std::span<const MetricsLine> metrics, std::string_view key);

}  // namespace lockstep
