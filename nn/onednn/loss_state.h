// What an executor keeps of a batch outside the shared workspace: its labels, and the answers that stay readable after the step.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::onednn {

struct LossState {  // of one head
    float smoothing = 0.0F;
    float weight = 1.0F;
    std::vector<int32_t> labels;         // N
    std::vector<int32_t> second_labels;  // N; of images that are mixtures
    float second_share = 0.0F;           // of the second labels; 0: no image is a mixture
    std::vector<float> logits;           // (N, classes)
    std::vector<float> losses;           // N, before the weight; the last head's become the weighted sum over all
};

}  // namespace lockstep::onednn
