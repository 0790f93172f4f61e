// The recording side of the report: one per rank, owned by the trainer, used from its thread.
//
// Step records go to a preallocated ring and from there to `<run folder>/records/rank<r>.bin` at flush points, never per event.
// A killed run keeps what was flushed. Rank 0 also writes metrics.jsonl and TensorBoard events.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "report/records.h"

namespace lockstep {

struct RecorderOptions {
    std::filesystem::path run_dir;
    int64_t flush_every_steps = 100;
    int64_t start_step = 0;  // resumed runs append: records and metrics at or after this step are dropped first
    bool tensorboard = true;
};

class Recorder {
public:
    static std::unique_ptr<Recorder> create(const RecorderOptions& options, const RunFacts& facts);
    virtual ~Recorder() = default;
    virtual void record_step(const StepRecord& record) = 0;   // copies; allocates nothing; writes only at flush points
    virtual void record_pause(const Span& span) = 0;          // evaluation or checkpoint between steps
    virtual void write_metrics(const MetricsLine& line) = 0;  // rank 0; flushed at once
    virtual void flush() = 0;
};

// Reads all ranks' records in the run folder and writes report.json, report.html and trace.json; returns the terminal summary.
// Works on unfinished runs; ranks whose records are missing are named. Throws DataError for a folder without records.
struct ReportOptions {
    std::filesystem::path run_dir;
    int64_t trace_steps = 20;      // a window of steps in the trace
    int64_t skip_first_steps = 3;  // not steady state yet
};
std::string write_report(const ReportOptions& options);

}  // namespace lockstep
