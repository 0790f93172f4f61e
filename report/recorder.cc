#include "report/recorder.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "report/append_file.h"
#include "report/facts_json.h"
#include "report/metrics_file.h"
#include "report/record_file.h"
#include "report/tensorboard.h"

namespace lockstep {

namespace {

bool comparable(const RunFacts& earlier, const RunFacts& now) {
    const auto same = [](const BucketInfo& a, const BucketInfo& b) { return a.layers == b.layers && a.bytes == b.bytes; };
    return earlier.world_size == now.world_size && std::ranges::equal(earlier.buckets, now.buckets, same);
}

// What a resumed run keeps of this rank's earlier records. A file that cannot be read is replaced, with a warning.
RankRecords earlier_records(const RecorderOptions& options, const RunFacts& facts) {
    const fs::path path = record_path(options.run_dir, facts.rank);
    if (options.start_step == 0 || !fs::exists(path)) return {};
    try {
        RankRecords records = parse_rank_records(MappedFile(path).bytes(), path.string(), INT64_MAX / 4);
        if (!records.warning.empty()) log::warn_here("{}", records.warning);
        if (!comparable(records.facts, facts)) {
            log::info("step records before step {} are dropped: they are of another number of ranks or other buckets",
                      options.start_step);
            return {};
        }
        std::erase_if(records.steps, [&](const StoredStep& step) { return step.step >= options.start_step; });
        std::erase_if(records.pauses, [&](const StoredPause& pause) { return pause.next_step > options.start_step; });
        std::erase_if(records.session_starts, [&](int64_t start) { return start >= options.start_step; });
        return records;
    } catch (const DataError& error) {
        log::warn_here("{}; step records start again", error.what());
        return {};
    }
}

// Files of ranks that this run does not have would be taken for its own.
void remove_foreign_ranks(const fs::path& run_dir, int world_size) {
    std::error_code ignored;
    for (int rank = world_size; fs::remove(record_path(run_dir, rank), ignored); ++rank) {
    }
}

class FileRecorder final : public Recorder {
public:
    FileRecorder(const RecorderOptions& options, const RunFacts& facts)
        : block_(kBlockBytes), flush_every_steps_(std::max<int64_t>(1, options.flush_every_steps)), next_step_(options.start_step) {
        make_directories(options.run_dir / "records");
        RankRecords kept = earlier_records(options, facts);
        kept.session_starts.push_back(options.start_step);
        records_path_ = record_path(options.run_dir, facts.rank);
        write_file_atomically(records_path_, encode_rank_records(facts, kept));
        records_.emplace(records_path_);
        if (facts.rank == 0) open_leader_files(options, facts);
    }

    ~FileRecorder() override {
        try {
            flush();
        } catch (const std::exception& error) {
            log::warn_here("{}", error.what());
        }
    }

    void record_step(const StepRecord& record) override {
        next_step_ = record.step + 1;
        append([&] { return block_.add_step(record); });
        if (++buffered_steps_ >= flush_every_steps_) flush();
    }

    void record_pause(const Span& span) override {
        append([&] { return block_.add_pause(next_step_, span); });
    }

    void write_metrics(const MetricsLine& line) override {
        if (!metrics_ || failed_) return;
        guarded([&] {
            line_.clear();
            format_metrics_line(line, line_);
            metrics_->append(std::span<const char>(line_.data(), line_.size()));
            if (tensorboard_) tensorboard_->write(line, wall_clock_s());
        });
    }

    void flush() override {
        buffered_steps_ = 0;
        if (block_.empty() || failed_) return;
        guarded([&] { records_->append(block_.finish()); });
        block_.clear();
        if (too_long_ > 0) {
            log::warn_here("{} step records were longer than {} bytes and are missing in the report", too_long_, kBlockBytes);
            too_long_ = 0;
        }
    }

private:
    static constexpr size_t kBlockBytes = size_t{1} << 20;  // hundreds of ordinary steps

    void open_leader_files(const RecorderOptions& options, const RunFacts& facts) {
        remove_foreign_ranks(options.run_dir, facts.world_size);
        write_file_atomically(options.run_dir / "run.json", facts_to_json(facts) + "\n");
        keep_metrics_before(options.run_dir / "metrics.jsonl", options.start_step);
        metrics_.emplace(options.run_dir / "metrics.jsonl");
        if (options.tensorboard) tensorboard_.emplace(options.run_dir, options.start_step);
    }

    template <typename Add>
    void append(Add add) {
        if (failed_ || add()) return;
        flush();
        if (!add()) ++too_long_;
    }

    template <typename Write>
    void guarded(Write write) {
        try {
            write();
        } catch (const DeviceError&) {
            failed_ = true;  // the caller hears of it once
            throw;
        }
    }

    BlockWriter block_;
    const int64_t flush_every_steps_;
    int64_t buffered_steps_ = 0;
    int64_t next_step_;
    int64_t too_long_ = 0;
    bool failed_ = false;
    fs::path records_path_;
    std::optional<AppendFile> records_;
    std::optional<AppendFile> metrics_;  // rank 0
    std::optional<TensorBoardWriter> tensorboard_;
    fmt::memory_buffer line_;
};

}  // namespace

std::unique_ptr<Recorder> Recorder::create(const RecorderOptions& options, const RunFacts& facts) {
    check(facts.world_size >= 1 && facts.rank >= 0 && facts.rank < facts.world_size, "the recorder's rank is one of the world");
    return std::make_unique<FileRecorder>(options, facts);
}

}  // namespace lockstep
