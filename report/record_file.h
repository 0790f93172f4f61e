// The records file of one rank, format 1. Little-endian.
//
//   head   "LSRECORD", u32 version = 1, u32 json_bytes, u64 XXH3 of json, json (facts_json.h)
//   block  u32 "LBLK", u32 payload_bytes, u64 XXH3 of payload, payload          any number of times
//   payload: records one after the other, numbers as LEB128 varints, signed ones zigzag
//     1 step     step, begin_ns, end_ns - begin_ns, images, span count, spans, bucket count, buckets
//                span: kind, time(begin), time(end); bucket: index, time(ready), time(start), time(arrived), time(end)
//                time(t) = 0 for an unknown t = 0, else 1 + zigzag(t - begin_ns)
//     2 pause    next step, kind, begin_ns, end_ns - begin_ns
//     3 session  step at which a process began or resumed the run
//
// A file is cut by a kill at any byte and may come from anywhere: every length and number is checked before use; from the first
// block that is damaged on, the rest is dropped with a warning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/records.h"

namespace lockstep {

struct StoredStep {
    int64_t step = 0;
    int64_t begin_ns = 0, end_ns = 0;
    int64_t images = 0;
    std::vector<Span> spans;
    std::vector<BucketRecord> buckets;
};

struct StoredPause {
    int64_t next_step = 0;  // the step that follows
    Span span;
};

// What one rank left behind.
struct RankRecords {
    RunFacts facts;
    std::vector<StoredStep> steps;        // ascending by step
    std::vector<StoredPause> pauses;      // ascending by next_step after load_run_records
    std::vector<int64_t> session_starts;  // ascending
    std::string warning;                  // what was dropped; empty: nothing
};

// Collects records for one block in memory that it allocates once.
class BlockWriter {
public:
    explicit BlockWriter(size_t capacity_bytes);

    // False when the record does not fit any more; then nothing was added.
    bool add_step(const StepRecord& record);
    bool add_pause(int64_t next_step, const Span& span);
    bool add_session(int64_t step);

    bool empty() const { return used_ == kFrameBytes; }
    std::span<const char> finish();  // the whole block, framed; valid until clear()
    void clear() { used_ = kFrameBytes; }

private:
    static constexpr size_t kFrameBytes = 16;
    bool fits(size_t bytes) const { return bytes_.size() - used_ >= bytes; }
    void put(uint64_t value);
    void put_signed(int64_t value);
    void put_time(int64_t time_ns, int64_t begin_ns);

    std::vector<char> bytes_;
    size_t used_ = kFrameBytes;
};

std::string encode_head(const RunFacts& facts);

// Keeps the last `max_steps` steps. Throws DataError when the head is not that of a records file; `name` is for messages.
RankRecords parse_rank_records(std::span<const std::byte> bytes, const std::string& name, int64_t max_steps);

// Everything in one rank's file again as bytes: what a resumed run keeps.
std::string encode_rank_records(const RunFacts& facts, const RankRecords& records);

std::filesystem::path record_path(const std::filesystem::path& run_dir, int rank);

// All ranks' records of a run folder.
struct RunRecords {
    std::vector<RankRecords> ranks;  // ascending by facts.rank
    int world_size = 1;
    std::vector<int> missing_ranks;
    std::vector<std::string> warnings;
    std::optional<double> clock_error_ms;  // bound of the alignment between hosts; empty: one host, one clock
};

// Throws DataError when no rank's file can be read.
RunRecords load_run_records(const std::filesystem::path& run_dir, int64_t max_steps);

}  // namespace lockstep
