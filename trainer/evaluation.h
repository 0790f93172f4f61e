// Exact evaluation: every image counts once, whatever the number of ranks, and the result does not depend on that number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/communicator.h"
#include "data_loader/loader.h"
#include "nn/executor.h"
#include "trainer/bad_images.h"
#include "trainer/stop_signals.h"

namespace lockstep {

struct EvaluationResult {
    int64_t count = 0;
    double loss = 0.0;  // mean over images
    double top1 = 0.0;  // fractions
    double top5 = 0.0;  // with five classes or fewer every image counts
};

// What one batch contributes; gathered from all ranks and added in batch order.
struct BatchTally {
    double loss_sum = 0.0;
    int64_t count = 0, top1 = 0, top5 = 0;
};
EvaluationResult combine(const std::vector<BatchTally>& tallies);

// The batches b, b + size, b + 2 * size ... of one rank b (data_loader/loader.h).
class Evaluator {
public:
    // `executor` is compiled for evaluation with options.slot_capacity images. All arguments outlive the evaluator.
    Evaluator(const Source& source, LoaderOptions options, Executor& executor, int64_t classes, Communicator& communicator);

    // Collective: the same result on all ranks. `step` names the moment in errors. With `signals`, on all ranks or none, a wish to
    // stop on any of them ends it within two batches, with nullopt on all.
    std::optional<EvaluationResult> run(int64_t step, const StopSignals* signals = nullptr);

    // What this rank could not read in all runs so far.
    const BadImages& bad_images() const { return bad_images_; }

private:
    BatchTally tally(const Batch& batch);

    const Source& source_;
    const LoaderOptions options_;
    Executor& executor_;
    const int64_t classes_;
    Communicator& communicator_;
    std::vector<float> images_;    // (slot_capacity, C, H, W): a short batch, padded
    std::vector<int32_t> labels_;  // slot_capacity; -1: no image
    BadImages bad_images_;
};

}  // namespace lockstep
