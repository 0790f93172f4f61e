// The step's bookkeeping that rides in the control entry of the gradients, and so is summed over all ranks with the last bucket:
// every rank knows the same loss and the same stop request at the same step, without a message of its own.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

struct StepControl {
    double loss_sum = 0.0;  // over images
    int64_t correct = 0;    // images whose label had the largest logit
    int64_t images = 0;
    bool stop = false;  // somebody wishes to stop; one rank's wish is everyone's
    int bad_ranks = 0;  // how many ranks had a loss that was NaN or Inf
    int bad_rank = -1;  // which, where it was one; of several only the number is known
};

// Counts are kept as floats: exact up to 2^24 images in a global batch.
void write_control(std::span<float> control, const StepControl& mine);
StepControl read_control(std::span<const float> control_sum);

}  // namespace lockstep
