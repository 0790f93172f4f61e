// Which sample goes where: pure functions of (seed, epoch, step, virtual worker). The number of ranks never enters the order.
//
// An epoch is one permutation of all samples. Step s takes the next `batch_global` of them (the last step may be short, or is
// dropped); a step is cut into virtual workers of `per_replica` samples (the last may be short); virtual workers are dealt to ranks
// in contiguous runs.
//
// Steps are counted from the begin of a run, all with one global batch. A run that goes on with another global batch than before
// counts in steps of the new one; its first step then lacks the samples at its front that were used already, and from the second
// on the run is at the places of one that has had this batch from the begin. So each sample still comes once per epoch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct SamplerOptions {
    int64_t sample_count = 0;
    int64_t batch_global = 0;
    int64_t per_replica = 0;  // size of a virtual worker
    bool shuffle = true;
    bool keep_remainder = true;  // false: the samples that do not fill a step are dropped
    // A short step leaves virtual workers where a full step has them, on the first ranks; false: it is dealt evenly.
    bool fixed_places = false;
    uint64_t seed = 0;
    // Step `short_step` lacks its first `used_before` samples: [0, batch_global).
    int64_t short_step = 0;
    int64_t used_before = 0;
};

// How far a run has come in the data: whole epochs, and samples of the epoch under way.
struct DataPlace {
    int64_t epoch = 0;
    int64_t samples = 0;
    bool operator==(const DataPlace&) const = default;
};

// Virtual workers [first, last) of a step belong to a rank.
struct WorkerRange {
    int64_t first = 0, last = 0;
};
class Sampler {
public:
    explicit Sampler(const SamplerOptions& options);  // ConfigError when an epoch has no step
    const SamplerOptions& options() const { return options_; }
    int64_t steps_per_epoch() const;
    int64_t samples_used_per_epoch() const;
    int64_t samples_in_step(int64_t step) const;
    int64_t workers_in_step(int64_t step) const;
    int64_t samples_in_worker(int64_t step, int64_t worker) const;
    int64_t workers_in_full_step() const { return (options_.batch_global + options_.per_replica - 1) / options_.per_replica; }
    WorkerRange workers_of_rank(int64_t step, int rank, int world_size) const;
    DataPlace place_before(int64_t step) const;

    // The epoch's order. Costs O(sample_count); keep it for the epoch.
    std::vector<int64_t> permutation(int64_t epoch) const;
    void permutation(int64_t epoch, std::span<int64_t> order) const;  // the same into memory of sample_count entries
    // Position in the epoch's permutation of a virtual worker's first sample.
    int64_t position(int64_t step, int64_t worker) const;

private:
    int64_t missing_in(int64_t step) const { return step == options_.short_step ? options_.used_before : 0; }

    SamplerOptions options_;
};

// The step at which a run with these options goes on from `place`: options.short_step and used_before are set for it.
int64_t continue_from(const DataPlace& place, SamplerOptions& options);

}  // namespace lockstep
