// Where the time of loading an image goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/clock.h"

namespace lockstep {

// read: the stored bytes (of a mapped file only where they lie: decode takes the page faults). copy: normalised into the batch.
enum class Stage : uint8_t { read, decode, resize, augment, copy };
constexpr size_t kStageCount = 5;
constexpr std::array<std::string_view, kStageCount> kStageNames = {"read", "decode", "resize", "augment", "copy"};

using StageTimes = std::array<int64_t, kStageCount>;  // wall time in ns, by stage

inline void add(StageTimes& sum, const StageTimes& more) {
    for (size_t stage = 0; stage < kStageCount; ++stage) sum[stage] += more[stage];
}

// One per thread.
class StageClock {
public:
    void begin() { last_ns_ = now_ns(); }
    // The time since `begin` or the last lap went into `stage`.
    void lap(Stage stage) {
        const int64_t now = now_ns();
        times_[static_cast<size_t>(stage)] += now - last_ns_;
        last_ns_ = now;
    }
    const StageTimes& times() const { return times_; }  // of all images so far

private:
    StageTimes times_{};
    int64_t last_ns_ = 0;
};

}  // namespace lockstep
