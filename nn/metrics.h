// Accuracy from logits. Pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

// Images among the first labels.size() rows whose label is among the k largest logits; ties go to the lower class index. With
// k >= classes every image counts. Rows with label -1 count nothing. logits: (rows, classes) row-major.
int64_t count_top_k(std::span<const float> logits, std::span<const int32_t> labels, int64_t classes, int64_t k);

}  // namespace lockstep
