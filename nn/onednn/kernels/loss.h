// Softmax cross-entropy on plain logits (rows, classes). Row by row, in parallel; exact for large logits (the maximum is taken
// out first). Target of a row: (1 - smoothing) on the label + smoothing / classes everywhere; of a mixture the first part is shared
// out between two labels.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::onednn {

struct LossTargets {
    std::span<const int32_t> labels;
    std::span<const int32_t> second_labels;
    float second_share = 0.0F;  // 0: second_labels are not looked at
    float smoothing = 0.0F;
};

// losses[row] = log(sum exp(logit)) - sum(target * logit); 0 for label -1.
void softmax_losses(std::span<const float> logits, const LossTargets& targets, std::span<float> losses);

// gradients[row] = weight * (softmax(logits[row]) - target); zeros for label -1.
void softmax_gradients(std::span<const float> logits, const LossTargets& targets, float weight, float* gradients);

}  // namespace lockstep::onednn
