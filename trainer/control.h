// The step's bookkeeping that rides in the control entry of the gradients, and so is summed over all ranks with the last bucket:
// every rank knows the same loss and the same stop request at the same step, without a message of its own.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

// What a signal asks for, the strongest last. One rank's wish is everyone's.
enum class StopRequest : uint8_t {
    none,
    requeue,    // USR1: checkpoint, exit code 138
    terminate,  // TERM: checkpoint, exit code 143
    interrupt,  // INT: checkpoint, exit code 130
};

struct StepControl {
    double loss_sum = 0.0;  // over images
    int64_t correct = 0;    // images whose label had the largest logit
    int64_t images = 0;
    StopRequest stop = StopRequest::none;
    int bad_rank = -1;  // a rank whose loss was NaN or Inf; of several, one of them; -1: none
};

// Counts are kept as floats: exact up to 2^24 images in a global batch.
void write_control(std::span<float> control, const StepControl& mine, int rank);
StepControl read_control(std::span<const float> control_sum, int world_size);

}  // namespace lockstep
