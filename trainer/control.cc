#include "trainer/control.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/parameter_arena.h"

namespace lockstep {

namespace {

enum Slot : size_t { kLossSum, kCorrect, kImages, kStop, kBadCount, kBadRankSum };

}  // namespace

void write_control(std::span<float> control, const StepControl& mine) {
    check(control.size() == static_cast<size_t>(ParameterArena::kControlCount), "the control entry has a fixed size");
    std::fill(control.begin(), control.end(), 0.0F);
    control[kLossSum] = static_cast<float>(mine.loss_sum);
    control[kCorrect] = static_cast<float>(mine.correct);
    control[kImages] = static_cast<float>(mine.images);
    control[kStop] = mine.stop ? 1.0F : 0.0F;
    control[kBadCount] = static_cast<float>(mine.bad_ranks);
    control[kBadRankSum] = mine.bad_ranks > 0 ? static_cast<float>(mine.bad_rank) : 0.0F;
}

StepControl read_control(std::span<const float> control_sum) {
    StepControl sum{.loss_sum = static_cast<double>(control_sum[kLossSum]),
                    .correct = std::lround(control_sum[kCorrect]),
                    .images = std::lround(control_sum[kImages]),
                    .stop = control_sum[kStop] > 0.0F,
                    .bad_ranks = static_cast<int>(std::lround(control_sum[kBadCount]))};
    if (sum.bad_ranks == 1) sum.bad_rank = static_cast<int>(std::lround(control_sum[kBadRankSum]));
    return sum;
}

}  // namespace lockstep
