// Batches, made ahead. Worker threads read, decode and augment into a ring of fixed slots; the trainer takes them in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data_loader/mix.h"
#include "data_loader/pipeline_options.h"
#include "data_loader/sampler.h"
#include "data_loader/source.h"
#include "data_loader/stage_times.h"

namespace lockstep {

// A virtual worker's images. Borrowed from a slot: valid until the next call of next() on its loader.
struct Batch {
    int64_t epoch = 0;
    int64_t step_in_epoch = 0;
    int64_t worker = 0;         // virtual worker within the step
    int count = 0;              // images; the slot's capacity may be larger
    std::span<float> images;    // (count, C, H, W), normalised
    std::span<int32_t> labels;  // count
    // Mixtures (LoaderOptions::mix): the labels mixed in (count) and their share; else empty and 0.
    std::span<int32_t> second_labels;
    float second_share = 0.0F;
    std::span<int64_t> samples;  // count: indices in the source, for audit
    int64_t wait_ns = 0;         // how long next() had to wait for it
};

struct LoaderStatistics {
    int64_t images = 0;
    int64_t bad_images = 0;
    std::vector<std::string> bad_paths;  // of each, with its reason
    int64_t decode_ns = 0;               // CPU time of workers in read + decode + augment
    int64_t warnings = 0;                // decoder warnings (kept pixels)
    int64_t starved = 0;                 // calls of next() that had to wait
    int64_t batches = 0;                 // calls of next() that gave one
    int64_t wait_ns = 0;                 // in all of them
    int64_t made = 0;                    // images of finished pieces of batches, taken or not
    int64_t ready_batches = 0;           // sum over the calls: batches that lay ready when it came
    int64_t slow_waits = 0;              // calls that waited longer than slow_after_ms
    int64_t read_bytes = 0;              // stored bytes of the images
    StageTimes stages{};                 // wall time of the workers
    int workers = 0;                     // at work now
};

struct LoaderOptions {
    PipelineOptions pipeline;
    MixOptions mix;  // of training
    int worker_threads = 1;
    int batches_ahead = 4;
    int slot_capacity = 0;  // images per slot = per_replica
    // Above worker_threads: one more whenever a batch was late, up to so many. Which thread makes an image changes nothing about
    // it.
    int max_worker_threads = 0;
    int64_t slow_after_ms = 2'000;        // waiting longer for a batch is a warning that names what is read
    int64_t timeout_ms = 60'000;          // so long without one finished image is a DataError that does
    std::function<void()> while_waiting;  // called by next() now and then while a batch is late
};

// What a loader delivers, in order: for each step from `start` on, this rank's virtual workers of the step.
class DataLoader {
public:
    virtual ~DataLoader() = default;
    // The next batch, or nullopt after the last step of the plan. Rethrows a worker's DataError (with the sample's path). Bounded:
    // see LoaderOptions::timeout_ms.
    virtual std::optional<Batch> next() = 0;
    virtual LoaderStatistics statistics() const = 0;
};

struct TrainPlan {
    SamplerOptions sampler;
    int rank = 0, world_size = 1;
    int64_t start_step = 0;  // global step count (epoch * steps_per_epoch + step_in_epoch) to begin with: exact resume
    int64_t stop_step = 0;   // one past the last
};
// `source` outlives the loader. No sample before start_step is read or decoded.
std::unique_ptr<DataLoader> make_train_loader(const Source& source, const TrainPlan& plan, const LoaderOptions& options);

// Each sample of the source once over all ranks, in source order: batch b of `slot_capacity` samples goes to rank b % world_size.
std::unique_ptr<DataLoader> make_evaluation_loader(const Source& source, int rank, int world_size, const LoaderOptions& options);

// One image through the pipeline (prediction, tests). `out`: (C, H, W).
void load_image(const Record& record, const PipelineOptions& options, int64_t epoch, int64_t sample, std::span<float> out);

}  // namespace lockstep
