#include <algorithm>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/files.h"
#include "report/data_supply.h"
#include "report/metrics_file.h"
#include "report/outputs.h"
#include "report/record_file.h"
#include "report/recorder.h"

namespace lockstep {

Report make_report(const ReportOptions& options) {
    RunRecords run = load_run_records(options.run_dir, std::max<int64_t>(1, options.max_steps));
    align_clocks(run);
    RunAnalysis analysis = analyze(run, options.skip_first_steps);
    const auto metrics = read_metrics(options.run_dir / "metrics.jsonl");
    analysis.data = data_supply(analysis, metrics);

    const int64_t first_traced = analysis.last_step - options.trace_steps + 1;
    const auto traced = timeline_of(run, std::max(analysis.first_step, first_traced), analysis.last_step);
    Report report{.summary = terminal_summary(analysis),
                  .files = {{"trace.json", chrome_trace(traced, analysis.ranks)}, {"report.json", json_report(analysis)}}};
    if (options.html) {
        std::vector<TimelineStep> typical;
        if (analysis.typical_step) typical = timeline_of(run, *analysis.typical_step, *analysis.typical_step);
        report.files["report.html"] = html_report(analysis, typical, metrics);
    }
    return report;
}

std::string write_report(const Report& report, const std::filesystem::path& folder) {
    for (const auto& [name, content] : report.files) write_file_atomically(folder / name, content);
    return fmt::format("written to {}: {}\n", folder.string(), fmt::join(report.files | std::views::keys, ", "));
}

std::string write_report(const ReportOptions& options) {
    const Report report = make_report(options);
    return report.summary + write_report(report, options.run_dir);
}

}  // namespace lockstep
