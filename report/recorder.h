// The recording side of the report: one per rank, owned by the trainer, used from its thread.
//
// Step records go to a preallocated buffer and from there to `<run folder>/records/rank<r>.bin` at flush points, never per event.
// A killed run keeps what was flushed. Rank 0 also writes run.json, metrics.jsonl and TensorBoard events.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "report/records.h"

namespace lockstep {

struct RecorderOptions {
    std::filesystem::path run_dir;
    int64_t flush_every_steps = 100;
    // Resumed runs append: records and metrics of steps >= start_step are dropped first. Records of an earlier run with another
    // number of ranks or other buckets are dropped whole, as they cannot be compared; its metrics stay.
    int64_t start_step = 0;
    bool tensorboard = true;
};

class Recorder {
public:
    // Prepares the files. Throws DeviceError when the folder cannot be written.
    static std::unique_ptr<Recorder> create(const RecorderOptions& options, const RunFacts& facts);

    virtual ~Recorder() = default;                            // flushes what is left; never throws
    virtual void record_step(const StepRecord& record) = 0;   // copies; allocates nothing; writes only at flush points
    virtual void record_pause(const Span& span) = 0;          // evaluation or checkpoint between steps
    virtual void write_metrics(const MetricsLine& line) = 0;  // on other ranks than 0: nothing; written at once

    // Writes what is buffered. When the disk refuses (also from record_step and write_metrics), throws DeviceError once, naming
    // file and reason; files keep whole blocks and lines, and the recorder stays silent from then on.
    virtual void flush() = 0;
};

struct ReportOptions {
    std::filesystem::path run_dir;
    int64_t trace_steps = 20;      // a window of steps in the trace
    int64_t skip_first_steps = 3;  // of the run and after each resume: not steady state yet
    int64_t max_steps = 20'000;    // per rank, the last ones: bounds memory; the report names its window
    bool html = true;              // report.html
};

struct Report {
    std::string summary;                       // for the terminal
    std::map<std::string, std::string> files;  // report.json, trace.json and, where asked for, report.html: content by name
};

// Of all ranks' records in the run folder. Works on unfinished runs; ranks whose records are missing are named. Throws DataError
// for a folder without records. Writes nothing.
Report make_report(const ReportOptions& options);
// Returns the line that says where the files are now. Throws DeviceError.
std::string write_report(const Report& report, const std::filesystem::path& folder);
// Both, in the run folder; returns all that is for the terminal.
std::string write_report(const ReportOptions& options);

}  // namespace lockstep
