#include "trainer/control.h"

#include <array>

#include <gtest/gtest.h>

#include "core/parameter_arena.h"

namespace lockstep {
namespace {

using Control = std::array<float, ParameterArena::kControlCount>;

StepControl sum_of(const std::vector<StepControl>& ranks) {
    Control sum{};
    for (const StepControl& rank : ranks) {
        Control mine{};
        mine.fill(99.0F);  // what the step before left
        write_control(mine, rank);
        for (size_t slot = 0; slot < sum.size(); ++slot) sum[slot] += mine[slot];
    }
    return read_control(sum);
}

TEST(Control, AddsLossCountsAndImagesOfAllRanks) {
    const StepControl sum = sum_of({{.loss_sum = 1.5, .correct = 3, .images = 8}, {.loss_sum = 2.0, .correct = 1, .images = 5}});
    EXPECT_DOUBLE_EQ(sum.loss_sum, 3.5);
    EXPECT_EQ(sum.correct, 4);
    EXPECT_EQ(sum.images, 13);
    EXPECT_FALSE(sum.stop);
    EXPECT_EQ(sum.bad_ranks, 0);
    EXPECT_EQ(sum.bad_rank, -1);
}

TEST(Control, OneRanksWishToStopIsEveryones) {
    EXPECT_TRUE(sum_of({{}, {.stop = true}, {}}).stop);
    EXPECT_TRUE(sum_of({{.stop = true}, {.stop = true}}).stop);
}

TEST(Control, NamesTheOneRankWhoseLossIsBadAndOfSeveralTheNumberAndNoWrongRank) {
    EXPECT_EQ(sum_of({{}, {}, {.bad_ranks = 1, .bad_rank = 2}}).bad_rank, 2);
    EXPECT_EQ(sum_of({{.bad_ranks = 1, .bad_rank = 0}, {}}).bad_rank, 0);
    const StepControl two = sum_of({{.bad_ranks = 1, .bad_rank = 0}, {.bad_ranks = 1, .bad_rank = 1}, {}, {}});
    EXPECT_EQ(two.bad_ranks, 2);
    EXPECT_EQ(two.bad_rank, -1);
}

}  // namespace
}  // namespace lockstep
