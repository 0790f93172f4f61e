// Dropout masks as a pure function of (dropout key, op, element): every backend drops the same elements, whatever its layout,
// thread count or order of work.
//
// Element e of op o draws word e % 4 of philox4x32(counter = {e / 4 low, e / 4 high, o, tag}, key = dropout_key) and is dropped
// when the word lies below probability * 2^32. Elements are counted in plain (N, C, H, W) order of the executor's batch.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

// Writes the factors of elements [first_element, first_element + factors.size()): 0 for a dropped one, 1 / (1 - probability) for a
// survivor. Threads may fill disjoint ranges.
void fill_dropout_factors(uint64_t dropout_key, int op, float probability, int64_t first_element, std::span<float> factors);

}  // namespace lockstep
