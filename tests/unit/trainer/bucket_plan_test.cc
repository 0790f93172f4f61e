#include "trainer/bucket_plan.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// Entries of the given sizes in KiB.
ParameterArena make_arena(const std::vector<int64_t>& sizes_kib) {
    HeapPool pool;
    std::vector<ParameterEntry> entries;
    for (const int64_t size : sizes_kib) {
        const int64_t count = size * 256;
        entries.push_back({.spec = {.name = "tensor" + std::to_string(entries.size()), .shape = {count}}, .physical_count = count});
    }
    return ParameterArena(std::move(entries), pool, pool, 0);
}

std::vector<int64_t> sizes_kib(const BucketPlan& plan) {
    std::vector<int64_t> sizes;
    for (const Bucket& bucket : plan) sizes.push_back(bucket.byte_count() / 1024);
    return sizes;
}

TEST(BucketPlan, CoversEveryGradientOnceWhateverTheSizes) {
    const ParameterArena arena = make_arena({4, 1, 1, 300, 2, 7, 1, 1, 9});
    for (const int64_t bucket_kib : {1, 2, 8, 64, 25'600, 1'048'576}) {
        for (const int64_t last_kib : {1, 4, 1024}) {
            const BucketPlan plan = plan_buckets(arena, {.bucket_bytes = bucket_kib << 10, .last_bucket_bytes = last_kib << 10});
            int64_t next = 0;
            size_t next_entry = 0;
            for (const Bucket& bucket : plan) {
                EXPECT_EQ(bucket.offset, next);
                EXPECT_EQ(bucket.entry_begin, next_entry);
                EXPECT_GT(bucket.count, 0);
                next += bucket.count;
                next_entry = bucket.entry_end;
            }
            EXPECT_EQ(next, arena.total_count());
            EXPECT_EQ(next_entry, arena.entries().size());
        }
    }
}

TEST(BucketPlan, ClosesABucketBeforeItExceedsTheCap) {
    const BucketPlan plan = plan_buckets(make_arena({4, 4, 4, 4, 4, 1}), {.bucket_bytes = 8 << 10, .last_bucket_bytes = 2 << 10});
    EXPECT_EQ(sizes_kib(plan), (std::vector<int64_t>{8, 8, 4, 1}));
}

TEST(BucketPlan, ATensorAboveTheCapTravelsAlone) {
    const BucketPlan plan = plan_buckets(make_arena({2, 300, 2, 2, 1}), {.bucket_bytes = 8 << 10, .last_bucket_bytes = 2 << 10});
    EXPECT_EQ(sizes_kib(plan), (std::vector<int64_t>{2, 300, 4, 1}));
}

TEST(BucketPlan, TheLastBucketHoldsControlAndWhatFitsOfTheFirstLayers) {
    const BucketPlan plan = plan_buckets(make_arena({64, 8, 1, 1}), {.bucket_bytes = 1 << 20, .last_bucket_bytes = 4 << 10});
    ASSERT_EQ(plan.size(), 2U);
    EXPECT_EQ(plan.back().entry_begin, 2U);  // two of 1 KiB and control
    const BucketPlan alone = plan_buckets(make_arena({64, 64}), {.bucket_bytes = 1 << 20, .last_bucket_bytes = 4 << 10});
    EXPECT_EQ(alone.back().byte_count(), ParameterArena::kControlCount * 4);
}

TEST(BucketPlan, ByDefaultTheLastBucketIsAnEighthOfAllAndAtMostOneMebibyte) {
    EXPECT_LE(plan_buckets(make_arena({8, 8, 8, 2, 2, 2, 1}), {}).back().byte_count(), 4 << 10);  // 31 KiB in all
    const BucketPlan large = plan_buckets(make_arena({9000, 9000, 600, 600, 100, 1}), {});
    EXPECT_GT(large.back().byte_count(), 600 << 10);
    EXPECT_LE(large.back().byte_count(), 1 << 20);
}

TEST(BucketPlan, EverythingFitsInOneBucketWhenAsked) {
    EXPECT_EQ(plan_buckets(make_arena({4, 4}), {.bucket_bytes = 1 << 30, .last_bucket_bytes = 1 << 30}).size(), 1U);
}

TEST(BucketPlan, HashSeesTheSlices) {
    const ParameterArena arena = make_arena({4, 4, 4});
    const uint64_t coarse = plan_hash(arena, plan_buckets(arena, {.bucket_bytes = 1 << 20}));
    const uint64_t fine = plan_hash(arena, plan_buckets(arena, {.bucket_bytes = 4 << 10, .last_bucket_bytes = 1 << 10}));
    EXPECT_NE(coarse, fine);
    EXPECT_EQ(fine, plan_hash(arena, plan_buckets(arena, {.bucket_bytes = 4 << 10, .last_bucket_bytes = 1 << 10})));
}

}  // namespace
}  // namespace lockstep
