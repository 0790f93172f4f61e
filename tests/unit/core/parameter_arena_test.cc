#include "core/parameter_arena.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::vector<ParameterEntry> two_entries() {
    return {{.spec = {.name = "fc.weight", .kind = ParameterKind::weight, .shape = {10, 3}}, .physical_count = 30},
            {.spec = {.name = "bn.running_mean", .kind = ParameterKind::bn_mean, .shape = {3}}, .physical_count = 16}};
}

TEST(ParameterArena, EntriesAreAlignedAndControlComesLast) {
    HeapPool pool;
    const ParameterArena arena(two_entries(), pool, pool, 1);
    ASSERT_EQ(arena.entries().size(), 3U);
    EXPECT_EQ(arena.entries()[0].offset, 0);
    EXPECT_EQ(arena.entries()[1].offset, 32);
    EXPECT_EQ(arena.entries()[2].spec.kind, ParameterKind::control);
    EXPECT_EQ(arena.total_count(), 64);
    for (const ParameterEntry& entry : arena.entries()) EXPECT_EQ(entry.offset % 16, 0);
}

TEST(ParameterArena, CountsOnlyTrainableParameters) {
    HeapPool pool;
    const ParameterArena arena(two_entries(), pool, pool, 0);
    EXPECT_EQ(arena.trainable_count(), 30);
    EXPECT_EQ(arena.trainable_tensor_count(), 1U);
}

TEST(ParameterArena, PlanHashSeesLayoutAndName) {
    HeapPool pool;
    const uint64_t hash = ParameterArena(two_entries(), pool, pool, 0).plan_hash();
    auto other_layout = two_entries();
    other_layout[0].layout = "OI16i16o";
    auto other_name = two_entries();
    other_name[0].spec.name = "head.weight";
    EXPECT_NE(hash, ParameterArena(other_layout, pool, pool, 0).plan_hash());
    EXPECT_NE(hash, ParameterArena(other_name, pool, pool, 0).plan_hash());
    EXPECT_EQ(hash, ParameterArena(two_entries(), pool, pool, 2).plan_hash());
}

}  // namespace
}  // namespace lockstep
