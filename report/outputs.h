// The report's faces: pure functions from the analysis to text. Deterministic: the same run gives the same bytes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/analysis.h"
#include "report/records.h"

namespace lockstep {

// Schema "lockstep.report" version 1 (docs/report.md): keys are stable and carry their units; unknown values are null.
std::string json_report(const RunAnalysis& analysis);

// One self-contained page: inline SVG, style and script, no network. `typical`: one step of all ranks for the timeline.
std::string html_report(const RunAnalysis& analysis, std::span<const TimelineStep> typical, std::span<const MetricsLine> metrics);

// Chrome trace events (also read by Perfetto): process = rank; threads = step, compute, communication, data.
std::string chrome_trace(std::span<const TimelineStep> timeline, std::span<const RankSummary> ranks);

// One screen of plain text.
std::string terminal_summary(const RunAnalysis& analysis);

}  // namespace lockstep
