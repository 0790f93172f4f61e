#include "nn/onednn/memory_plan.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace lockstep::onednn {
namespace {

bool share_bytes(const MemoryPlan& plan, const std::vector<BufferLife>& lives, size_t a, size_t b) {
    return plan.offsets[a] < plan.offsets[b] + lives[b].bytes && plan.offsets[b] < plan.offsets[a] + lives[a].bytes;
}

TEST(MemoryPlan, LiveBuffersNeverShareAByteAndStayInside) {
    RandomStream random(7, "memory plan");
    for (int round = 0; round < 200; ++round) {
        std::vector<BufferLife> lives(1 + random.below(40));
        for (BufferLife& life : lives) {
            life.bytes = random.below(5000);
            life.first_use = static_cast<int>(random.below(30));
            life.last_use = life.first_use + static_cast<int>(random.below(10));
        }
        const MemoryPlan plan = plan_memory(lives);
        for (size_t a = 0; a < lives.size(); ++a) {
            EXPECT_EQ(plan.offsets[a] % 64, 0U);
            EXPECT_LE(plan.offsets[a] + lives[a].bytes, plan.total_bytes);
            for (size_t b = 0; b < a; ++b) {
                const bool together = lives[a].first_use <= lives[b].last_use && lives[b].first_use <= lives[a].last_use;
                EXPECT_FALSE(together && share_bytes(plan, lives, a, b)) << a << " and " << b << " in round " << round;
            }
        }
    }
}

TEST(MemoryPlan, BuffersThatNeverMeetShareOnePlace) {
    const std::vector<BufferLife> lives{{640, 0, 1}, {640, 2, 3}, {640, 4, 4}};
    const MemoryPlan plan = plan_memory(lives);
    EXPECT_EQ(plan.total_bytes, 640U);
    EXPECT_EQ(plan.unshared_bytes, 3U * 640U);
}

TEST(MemoryPlan, TouchingLivesAreLivesThatOverlap) {
    const std::vector<BufferLife> lives{{64, 0, 2}, {64, 2, 3}};
    EXPECT_EQ(plan_memory(lives).total_bytes, 128U);
}

TEST(MemoryPlan, NothingNeedsNothing) { EXPECT_EQ(plan_memory({}).total_bytes, 0U); }

}  // namespace
}  // namespace lockstep::onednn
