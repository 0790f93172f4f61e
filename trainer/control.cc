#include "trainer/control.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/parameter_arena.h"

namespace lockstep {

namespace {

enum Slot : size_t { kLossSum, kCorrect, kImages, kStop, kBadCount, kBadRankSum };

}  // namespace

void write_control(std::span<float> control, const StepControl& mine, int rank) {
    check(control.size() == static_cast<size_t>(ParameterArena::kControlCount), "the control entry has a fixed size");
    std::fill(control.begin(), control.end(), 0.0F);
    const bool bad = mine.bad_rank >= 0;
    control[kLossSum] = static_cast<float>(mine.loss_sum);
    control[kCorrect] = static_cast<float>(mine.correct);
    control[kImages] = static_cast<float>(mine.images);
    control[kStop] = mine.stop ? 1.0F : 0.0F;
    control[kBadCount] = bad ? 1.0F : 0.0F;
    control[kBadRankSum] = bad ? static_cast<float>(rank) : 0.0F;
}

StepControl read_control(std::span<const float> control_sum, int world_size) {
    StepControl sum{.loss_sum = static_cast<double>(control_sum[kLossSum]),
                    .correct = std::lround(control_sum[kCorrect]),
                    .images = std::lround(control_sum[kImages]),
                    .stop = control_sum[kStop] > 0.0F};
    if (control_sum[kBadCount] > 0.0F) {
        // One bad rank is named exactly; of several the mean of their numbers would lie, so the last rank stands for "all of them".
        const bool one = control_sum[kBadCount] < 1.5F;
        sum.bad_rank = one ? static_cast<int>(std::lround(control_sum[kBadRankSum])) : world_size - 1;
    }
    return sum;
}

}  // namespace lockstep
