// Where NaN or infinity began: which rank, which layer. Once gradients are summed every rank has them; so each rank looks at its
// own first, and when a step turns out to be bad all tell what they saw.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/parameter_arena.h"

namespace lockstep {

// Entries of the arena that were not finite in this rank's own gradients; -1: none. The arena is in the order of backward, so the
// lowest entry is where backward met it first, and the highest statistic is where forward did: a batch norm's statistics are those
// of its input.
struct OwnHealth {
    int64_t first_gradient = -1;
    int64_t first_statistic_of_forward = -1;

    void note(int64_t entry, bool is_statistic) {
        if (is_statistic && entry > first_statistic_of_forward) first_statistic_of_forward = entry;
        if (!is_statistic && (first_gradient < 0 || entry < first_gradient)) first_gradient = entry;
    }
};

// What this rank can say: "the parameter conv1.weight was not finite before the step", "in forward, at the input of layer1.0.bn1",
// "in the loss", "in backward, at fc.weight"; empty when all of its own numbers are finite. Reads all parameters.
std::string describe_origin(const ParameterArena& arena, const OwnHealth& own, bool loss_is_finite);

// The ranks' words as one sentence: the origin lies where they are not empty. Pure.
std::string combine_origins(const std::vector<std::string>& of_rank);

}  // namespace lockstep
