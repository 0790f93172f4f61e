// Whether all of many numbers are finite, at the speed of memory.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace lockstep {

// Zero times a number is zero, unless it is NaN or infinite: so there is no branch for each value.
inline bool all_finite(std::span<const float> values) {
    constexpr size_t kLanes = 16;
    std::array<float, kLanes> sums{};
    const size_t whole = values.size() / kLanes * kLanes;
    for (size_t begin = 0; begin < whole; begin += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += 0.0F * values[begin + lane];
    }
    float sum = 0.0F;
    for (const float lane : sums) sum += lane;
    for (const float value : values.subspan(whole)) sum += 0.0F * value;
    return sum == 0.0F;
}

}  // namespace lockstep
