#include <algorithm>

#include <fmt/format.h>

#include "core/files.h"
#include "report/data_supply.h"
#include "report/metrics_file.h"
#include "report/outputs.h"
#include "report/record_file.h"
#include "report/recorder.h"

namespace lockstep {

std::string write_report(const ReportOptions& options) {
    RunRecords run = load_run_records(options.run_dir, std::max<int64_t>(1, options.max_steps));
    align_clocks(run);
    RunAnalysis analysis = analyze(run, options.skip_first_steps);
    const auto metrics = read_metrics(options.run_dir / "metrics.jsonl");
    analysis.data = data_supply(analysis, metrics);

    const int64_t first_traced = analysis.last_step - options.trace_steps + 1;
    const auto traced = timeline_of(run, std::max(analysis.first_step, first_traced), analysis.last_step);
    write_file_atomically(options.run_dir / "trace.json", chrome_trace(traced, analysis.ranks));
    write_file_atomically(options.run_dir / "report.json", json_report(analysis));
    std::string files = "report.json, trace.json";
    if (options.html) {
        std::vector<TimelineStep> typical;
        if (analysis.typical_step) typical = timeline_of(run, *analysis.typical_step, *analysis.typical_step);
        write_file_atomically(options.run_dir / "report.html", html_report(analysis, typical, metrics));
        files = "report.html, " + files;
    }
    return terminal_summary(analysis) + fmt::format("written to {}: {}\n", options.run_dir.string(), files);
}

}  // namespace lockstep
