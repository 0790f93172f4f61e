#include "data_loader/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "data_loader/batch_sequence.h"

namespace lockstep {
namespace {

// The samples each rank gets in steps [start, stop), in order.
std::vector<std::vector<int64_t>> dealt(const SamplerOptions& options, int world_size, int64_t start, int64_t stop) {
    std::vector<std::vector<int64_t>> ranks(static_cast<size_t>(world_size));
    for (int rank = 0; rank < world_size; ++rank) {
        TrainSequence sequence(
            {.sampler = options, .rank = rank, .world_size = world_size, .start_step = start, .stop_step = stop});
        std::vector<int64_t> samples(static_cast<size_t>(options.per_replica));
        for (BatchAssignment assignment; sequence.next(assignment, samples);) {
            ranks[static_cast<size_t>(rank)].insert(ranks[static_cast<size_t>(rank)].end(), samples.begin(),
                                                    samples.begin() + assignment.count);
        }
    }
    return ranks;
}

TEST(Sampler, ShuffledEpochsDifferAndComeBackInASecondRun) {
    const SamplerOptions options{.sample_count = 101, .batch_global = 22, .per_replica = 11, .seed = 7};
    const Sampler first(options), second(options);
    EXPECT_NE(first.permutation(0), first.permutation(1));
    EXPECT_NE(first.permutation(1), first.permutation(2));
    EXPECT_NE(first.permutation(0), first.permutation(2));
    for (int64_t epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(first.permutation(epoch), second.permutation(epoch));
}

TEST(Sampler, WithoutShuffleTheListedOrderStands) {
    std::vector<int64_t> listed(101);
    std::iota(listed.begin(), listed.end(), 0);
    EXPECT_EQ(Sampler({.sample_count = 101, .batch_global = 22, .per_replica = 11, .shuffle = false}).permutation(2), listed);
}

TEST(Sampler, RemainderIsKeptOrDroppedWithEqualSteps) {
    const Sampler keep({.sample_count = 101, .batch_global = 33, .per_replica = 11});
    EXPECT_EQ(keep.steps_per_epoch(), 4);
    EXPECT_EQ(keep.samples_used_per_epoch(), 101);
    EXPECT_EQ(keep.samples_in_step(3), 2);
    EXPECT_EQ(keep.samples_in_worker(3, 0), 2);
    const Sampler drop({.sample_count = 101, .batch_global = 33, .per_replica = 11, .keep_remainder = false});
    EXPECT_EQ(drop.steps_per_epoch(), 3);
    EXPECT_EQ(drop.samples_used_per_epoch(), 99);
    const Sampler small({.sample_count = 5, .batch_global = 64, .per_replica = 32});
    EXPECT_EQ(small.steps_per_epoch(), 1);
    EXPECT_EQ(small.samples_in_step(0), 5);
}

TEST(Sampler, AnEpochWithoutAStepIsAnError) {
    EXPECT_THROW(Sampler({.sample_count = 5, .batch_global = 64, .per_replica = 32, .keep_remainder = false}), ConfigError);
    EXPECT_THROW(Sampler({.sample_count = 0, .batch_global = 64, .per_replica = 32}), ConfigError);
    EXPECT_THROW(Sampler({.sample_count = 5, .batch_global = 0, .per_replica = 32}), ConfigError);
}

TEST(Sampler, WorkersAreDealtInContiguousRunsThatDifferByOne) {
    for (int64_t workers = 1; workers < 20; ++workers) {
        const Sampler sampler({.sample_count = 4 * workers, .batch_global = 4 * workers, .per_replica = 4});
        for (int world = 1; world <= 5; ++world) {
            int64_t next = 0;
            for (int rank = 0; rank < world; ++rank) {
                const WorkerRange range = sampler.workers_of_rank(0, rank, world);
                EXPECT_EQ(range.first, next);
                EXPECT_GE(range.last - range.first, workers / world);
                EXPECT_LE(range.last - range.first, workers / world + 1);
                next = range.last;
            }
            EXPECT_EQ(next, workers);
        }
    }
}

TEST(Sampler, AShortStepLeavesWorkersInTheirFixedPlaces) {
    // The last step has 5 of 8 virtual workers.
    const Sampler sampler({.sample_count = 50, .batch_global = 32, .per_replica = 4, .fixed_places = true});
    const std::vector<std::pair<int64_t, int64_t>> expected{{0, 2}, {2, 4}, {4, 5}, {5, 5}};
    for (int rank = 0; rank < 4; ++rank) {
        const WorkerRange range = sampler.workers_of_rank(1, rank, 4);
        EXPECT_EQ(std::pair(range.first, range.last), expected[static_cast<size_t>(rank)]) << rank;
    }
}

class EveryWorld : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(EveryWorld, EachSampleComesExactlyOnceAnEpochWithAnyRemainder) {
    const auto [world_size, sample_count] = GetParam();
    const SamplerOptions options{.sample_count = sample_count, .batch_global = 24, .per_replica = 4, .seed = 3};
    const int64_t steps = Sampler(options).steps_per_epoch();
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
        std::vector<int64_t> all;
        for (const auto& rank : dealt(options, world_size, epoch * steps, (epoch + 1) * steps)) {
            all.insert(all.end(), rank.begin(), rank.end());
        }
        std::sort(all.begin(), all.end());
        std::vector<int64_t> expected(static_cast<size_t>(sample_count));
        std::iota(expected.begin(), expected.end(), 0);
        EXPECT_EQ(all, expected);
    }
}

INSTANTIATE_TEST_SUITE_P(Sampler, EveryWorld, ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Range(23, 51, 3)));

TEST(Sampler, AResumedRunGoesOnWithTheSameSamples) {
    const SamplerOptions options{.sample_count = 50, .batch_global = 8, .per_replica = 4, .seed = 3};
    auto whole = dealt(options, 2, 0, 21);
    const auto before = dealt(options, 2, 0, 9), after = dealt(options, 2, 9, 21);
    for (size_t rank = 0; rank < 2; ++rank) {
        std::vector<int64_t> joined = before[rank];
        joined.insert(joined.end(), after[rank].begin(), after[rank].end());
        EXPECT_EQ(joined, whole[rank]);
    }
}

TEST(Sampler, AnotherGlobalBatchInTheMidstOfAnEpochStillUsesEachSampleOnce) {
    const SamplerOptions before{.sample_count = 50, .batch_global = 8, .per_replica = 4, .seed = 3};
    const Sampler sampler(before);
    std::vector<int> once(50, 1);
    for (int64_t stop = 7; stop <= 14; ++stop) {  // the whole second epoch
        for (const int64_t batch : {4, 12, 16, 28, 64}) {
            SamplerOptions after = before;
            after.batch_global = batch;
            const int64_t start = continue_from(sampler.place_before(stop), after);
            const int64_t steps = Sampler(after).steps_per_epoch();
            std::vector<int> second(50), third(50);
            for (const auto& rank : dealt(before, 2, 7, stop)) {
                for (const int64_t sample : rank) ++second[static_cast<size_t>(sample)];
            }
            for (const auto& rank : dealt(after, 3, start, 2 * steps)) {
                for (const int64_t sample : rank) ++second[static_cast<size_t>(sample)];
            }
            for (const auto& rank : dealt(after, 3, 2 * steps, 3 * steps)) {
                for (const int64_t sample : rank) ++third[static_cast<size_t>(sample)];
            }
            EXPECT_EQ(second, once) << "from step " << stop << " with " << batch;
            EXPECT_EQ(third, once) << "from step " << stop << " with " << batch;
        }
    }
}

TEST(Sampler, EvaluationVisitsEachSampleOnceInSourceOrder) {
    for (int world = 1; world <= 4; ++world) {
        std::vector<int> seen(21);
        for (int rank = 0; rank < world; ++rank) {
            EvaluationSequence sequence(21, 4, rank, world);
            std::vector<int64_t> samples(4);
            for (BatchAssignment batch; sequence.next(batch, samples);) {
                EXPECT_EQ(batch.worker % world, rank);
                for (int place = 0; place < batch.count; ++place) {
                    EXPECT_EQ(samples[static_cast<size_t>(place)], batch.worker * 4 + place);
                    ++seen[static_cast<size_t>(samples[static_cast<size_t>(place)])];
                }
            }
        }
        EXPECT_EQ(seen, std::vector<int>(21, 1));
    }
}

}  // namespace
}  // namespace lockstep
