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

TEST(ParameterArena, SharedOutItKeepsItsPartOfTheStateAndTheNodesValues) {
    HeapPool pool;
    ParameterArena arena(two_entries(), pool, pool, 1);
    for (int64_t index = 0; index < 64; ++index) {
        arena.values()[static_cast<size_t>(index)] = static_cast<float>(index);
        arena.state(0)[static_cast<size_t>(index)] = static_cast<float>(100 + index);
    }
    Buffer common = pool.allocate(64 * sizeof(float));
    const std::span<float> seen_by_all = common.f32();
    arena.share_out(std::move(common), {{.offset = 16, .count = 16}, {.offset = 48, .count = 0}, {.offset = 48, .count = 16}},
                    pool);
    ASSERT_EQ(arena.state(0).size(), 32U);
    EXPECT_EQ(arena.state(0)[0], 116.0F);
    EXPECT_EQ(arena.state(0)[16], 148.0F);
    EXPECT_EQ(arena.values().data(), seen_by_all.data());
    EXPECT_EQ(arena.values().size(), 64U);
    EXPECT_EQ(arena.values()[15], 0.0F) << "another rank's";
    EXPECT_EQ(arena.values()[16], 16.0F);
    EXPECT_EQ(arena.values()[63], 63.0F);
}

}  // namespace
}  // namespace lockstep
