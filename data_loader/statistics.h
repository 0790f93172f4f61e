// What the pictures of a set look like as a whole.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "data_loader/image.h"
#include "data_loader/source.h"

namespace lockstep {

struct SetStatistics {
    int64_t images = 0, bad = 0;  // bad ones could not be decoded and are in none of the figures
    // Of the channels of stored pixels in [0, 1], as data.mean and data.stddev want them. Every picture weighs the same, whatever
    // its size; grey pictures count as three equal channels.
    std::array<double, 3> mean{}, stddev{};
    ImageSize smallest{}, largest{};             // by area
    std::map<int, int64_t> shorter_sides;        // 2^k -> pictures whose shorter side is in [2^k, 2^(k+1))
    std::map<int32_t, int64_t> images_of_class;  // of all samples, by label
};

// Decodes everything with several threads; the result does not depend on their number.
SetStatistics statistics_of(const Source& source, int threads);

}  // namespace lockstep
