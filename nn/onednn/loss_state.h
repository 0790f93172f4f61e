// What an executor keeps of a batch outside the shared workspace: its labels, and the answers that stay readable after the step.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::onednn {

struct LossState {
    float smoothing = 0.0F;
    std::vector<int32_t> labels;  // N
    std::vector<float> logits;    // (N, classes)
    std::vector<float> losses;    // N
};

}  // namespace lockstep::onednn
