// Softmax cross-entropy on plain logits (rows, classes). Row by row, in parallel; exact for large logits (the maximum is taken
// out first). Target of a row: (1 - smoothing) on the label + smoothing / classes everywhere.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::onednn {

// losses[row] = log(sum exp(logit)) - sum(target * logit); 0 for label -1.
void softmax_losses(std::span<const float> logits, std::span<const int32_t> labels, float smoothing, std::span<float> losses);

// gradients[row] = weight * (softmax(logits[row]) - target); zeros for label -1.
void softmax_gradients(std::span<const float> logits, std::span<const int32_t> labels, float smoothing, float weight,
                       float* gradients);

}  // namespace lockstep::onednn
