// What happened, as plain numbers. The trainer fills them, the report reads them; recording allocates nothing after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// A half-open interval of now_ns time on one rank. Spans of one kind never overlap within a rank.
struct Span {
    // update_wait: for the ranks of the node that share out the update.
    enum class Kind : uint8_t {
        data_wait,
        forward,
        backward,
        finish_wait,
        optimizer,
        evaluation,
        checkpoint,
        update_wait
    } kind = Kind::forward;
    static constexpr size_t kKinds = static_cast<size_t>(Kind::update_wait) + 1;
    int64_t begin_ns = 0, end_ns = 0;
};

struct BucketRecord {
    int32_t bucket = 0;
    int64_t ready_ns = 0;    // its last gradient was final
    int64_t start_ns = 0;    // this rank's communication began
    int64_t arrived_ns = 0;  // the last rank had arrived (0: unknown to this rank; derived from all ranks' start_ns)
    int64_t end_ns = 0;
};

// One training step of one rank. Evaluation and checkpoints lie between steps (Recorder::record_pause) and are no part of them.
struct StepRecord {
    int64_t step = 0;                  // counts from 0 over the whole run; ascending
    int64_t begin_ns = 0, end_ns = 0;  // wall time of the step: from the end of the previous one to its own end
    int64_t images = 0;                // of this rank
    std::span<const Span> spans;
    std::span<const BucketRecord> buckets;
};

struct BucketInfo {
    std::string layers;  // "fc.weight … layer4.2.bn3.weight"
    int64_t bytes = 0;
};

// What is fixed for the run: goes to the report's head and the run folder.
struct RunFacts {
    std::string name, model, data, backend, communicator, command, config_hash, program_version, host, started;
    int world_size = 1;
    int rank = 0;
    int threads = 1;
    int64_t batch_global = 0, per_replica = 0;
    uint64_t seed = 0;
    int64_t parameter_count = 0;
    std::vector<BucketInfo> buckets;
    std::vector<std::pair<std::string, std::string>> extra;  // anything else worth keeping
};

// One line of metrics.jsonl and of TensorBoard: keys such as "train.loss", "val.top1", "lr", "images_per_s".
struct MetricsLine {
    int64_t step = 0;  // the last step it speaks of (from 0), so that a run resumed at `start_step` keeps the lines before it
    double epoch = 0.0;
    std::vector<std::pair<std::string, double>> values;
};

}  // namespace lockstep
