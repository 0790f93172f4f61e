// Which batches one rank's loader makes, in order. Plain arithmetic; no pixels, no threads.
#pragma once

#include <cstdint>
#include <span>

#include "data_loader/epoch_order.h"
#include "data_loader/loader.h"
#include "data_loader/sampler.h"

namespace lockstep {

struct BatchAssignment {
    int64_t epoch = 0;
    int64_t step_in_epoch = 0;
    int64_t worker = 0;
    int count = 0;
};

class BatchSequence {
public:
    virtual ~BatchSequence() = default;
    // The next batch and its sample indices (the first `count` of `samples`); false after the last. One caller at a time.
    virtual bool next(BatchAssignment& assignment, std::span<int64_t> samples) = 0;
};

// The virtual workers of this rank, step by step.
class TrainSequence final : public BatchSequence {
public:
    explicit TrainSequence(const TrainPlan& plan);
    bool next(BatchAssignment& assignment, std::span<int64_t> samples) override;

private:
    const TrainPlan plan_;
    const Sampler sampler_;
    EpochOrder order_;
    int64_t step_;         // global
    int64_t worker_ = -1;  // -1: the step has not begun
};

// Batches of `batch` samples in source order; batch b belongs to rank b % world_size.
class EvaluationSequence final : public BatchSequence {
public:
    EvaluationSequence(int64_t sample_count, int64_t batch, int rank, int world_size);
    bool next(BatchAssignment& assignment, std::span<int64_t> samples) override;

private:
    const int64_t sample_count_, batch_, world_size_;
    int64_t next_batch_;
};

}  // namespace lockstep
