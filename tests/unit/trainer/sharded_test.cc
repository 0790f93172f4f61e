// An update that the ranks of a node share out (optim.sharded: node) differs from a whole one in time and memory, in nothing else.
#include <cstring>
#include <limits>

#include <gmock/gmock.h>

#include <fmt/format.h>

#include "core/files.h"
#include "tests/support/process_group.h"
#include "tests/unit/trainer/training_run.h"
#include "trainer/checkpoint.h"
#include "trainer/sharded_update.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// ---- the update by itself: a network of numbers, no training ----

ParameterArena numbers(Communicator& communicator) {
    HeapPool pool;
    std::vector<ParameterEntry> entries;
    for (const int64_t count : {700, 33, 5000, 16}) {
        ParameterEntry& entry = entries.emplace_back();
        entry.spec.name = fmt::format("tensor{}", entries.size());
        entry.spec.shape.push_back(count);
        entry.physical_count = count;
    }
    return {std::move(entries), pool, communicator.gradient_pool(), 1};
}

// Equal on all ranks, different for each purpose and element.
void fill(std::span<float> data, float purpose) {
    for (size_t index = 0; index < data.size(); ++index) {
        data[index] = purpose + 0.37F * static_cast<float>((index * 7 + static_cast<size_t>(purpose)) % 101);
    }
}

class UpdateTest : public ::testing::TestWithParam<int> {
protected:
    using Body = std::function<std::string(Communicator&, ParameterArena&, const BucketPlan&, ShardedUpdate&)>;

    // Every rank has taken over an arena that holds numbers, in buckets of 4 KiB, when `body` begins.
    static void expect_no_complaint(const Body& body) {
        const testing_support::ProcessGroup group{.size = GetParam()};
        for (const auto& outcome : group.run([&](const World&world, Store&store) {
                 const auto communicator = make_communicator(
                     world, store, {.backend = "native", .segment_bytes = size_t{64} << 10, .common_bytes = size_t{64} << 10});
                 ParameterArena arena = numbers(*communicator);
                 fill(arena.values(), 1.0F);
                 fill(arena.state(0), 2.0F);
                 const BucketPlan plan = plan_buckets(arena, {.bucket_bytes = 4 << 10});
                 ShardedUpdate update(*communicator->node_sharing(), world, arena, plan);
                 update.take_over();
                 return body(*communicator, arena, plan, update);
             })) {
            EXPECT_FALSE(outcome.threw) << outcome.text;
            EXPECT_EQ(outcome.signal, 0);
            EXPECT_EQ(outcome.text, "");
        }
    }
};

TEST_P(UpdateTest, EachRankKeepsItsShareOfTheStateAndAllSeeAllValues) {
    expect_no_complaint([](Communicator& communicator, ParameterArena& arena, const BucketPlan& plan, ShardedUpdate& update) {
        const int ranks = communicator.world().size;
        const auto slack = static_cast<int64_t>(16 * plan.size());  // slices border on 16
        if (update.owned_count() > arena.total_count() / ranks + slack) return fmt::format("{} floats", update.owned_count());
        if (static_cast<int64_t>(arena.state(0).size()) != update.owned_count()) return std::string("state of another size");
        std::vector<float> expected(arena.values().size());
        fill(expected, 1.0F);
        return std::string(std::ranges::equal(arena.values(), expected) ? "" : "values are missing");
    });
}

TEST_P(UpdateTest, WhatOneRankWritesAllReadAfterPublishing) {
    expect_no_complaint([](Communicator&, ParameterArena& arena, const BucketPlan&, ShardedUpdate& update) {
        for (int step = 1; step <= 5; ++step) {
            update.agree({}, step);  // all have looked at the values of the step before
            for (const ArenaRange& range : arena.owned()) {
                for (float& value : arena.values().subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.count)))
                    value += 1.0F;
            }
            update.publish(step);
            std::vector<float> expected(arena.values().size());
            fill(expected, 1.0F);
            for (float& value : expected) {
                for (int times = 0; times < step; ++times) value += 1.0F;
            }
            if (!std::ranges::equal(arena.values(), expected)) return fmt::format("step {} differs", step);
        }
        return std::string();
    });
}

TEST_P(UpdateTest, AllRanksHearTheSameVerdictFromTheFirstBadTensorOn) {
    expect_no_complaint([](Communicator& communicator, ParameterArena&, const BucketPlan&, ShardedUpdate& update) {
        const World& world = communicator.world();
        for (int bad = 0; bad < world.size; ++bad) {
            const GradientHealth mine{.squared_norm = static_cast<double>(world.rank + 1),
                                      .first_bad_entry = world.rank >= bad ? 7 + world.size - world.rank : -1};
            const GradientHealth all = update.agree(mine, bad);
            if (all.first_bad_entry != 8) return fmt::format("tensor {}", all.first_bad_entry);  // of the last rank, always bad
            if (all.squared_norm != 0.5 * world.size * (world.size + 1)) return fmt::format("norm {}", all.squared_norm);
            communicator.barrier({.what = "next step"});  // as the reducer's buckets
        }
        return std::string(update.agree({}, world.size).first_bad_entry == -1 ? "" : "bad without a reason");
    });
}

TEST_P(UpdateTest, TheGatheredStateHasEveryBitInItsPlace) {
    expect_no_complaint([](Communicator& communicator, ParameterArena& arena, const BucketPlan&, ShardedUpdate& update) {
        for (float& value : arena.state(0)) {
            if (value < 10.0F) value = -0.0F;  // a sum with zeros would lose the sign
        }
        std::vector<float> gathered;
        update.gather_state(3, [&](int, std::span<const float> whole) { gathered.assign(whole.begin(), whole.end()); });
        if (!communicator.world().is_leader()) return std::string(gathered.empty() ? "" : "the leader's alone");
        std::vector<float> expected(arena.values().size());
        fill(expected, 2.0F);
        for (float& value : expected) {
            if (value < 10.0F) value = -0.0F;
        }
        const bool equal = std::memcmp(gathered.data(), expected.data(), expected.size() * sizeof(float)) == 0;
        return std::string(equal ? "" : "the state differs");
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, UpdateTest, ::testing::Values(1, 2, 3, 4));

// ---- whole runs ----

class ShardedTest : public TrainingTest {
protected:
    // Batch norm, momentum, a rate that changes, several buckets.
    Experiment small(const std::string& name) const {
        Experiment experiment = tiny(name);
        experiment.model.arch = "tiny_bn";
        experiment.train.backend = "onednn";
        experiment.lr.schedule = "cosine";
        experiment.lr.warmup = {Duration::Unit::iterations, 3.0};
        experiment.lr.warmup_from = 0.01;
        experiment.train.duration.amount = 7.0;
        experiment.comm.bucket_bytes = 1 << 10;
        experiment.comm.last_bucket_bytes = 1 << 10;
        experiment.run.resume = "never";
        return experiment;
    }
    static Experiment shared_out(Experiment experiment) {
        experiment.optim.sharded = "node";
        return experiment;
    }
    fs::path checkpoint(const Experiment& experiment, int64_t step) const {
        return fs::path(experiment.run.dir) / "checkpoints" / fmt::format("step-{:09}", step);
    }
};

TEST_F(ShardedTest, TheWeightsAreThoseOfAWholeUpdateBitForBit) {
    Experiment experiment = small("bits");
    for (const int ranks : {1, 2, 3, 4}) {
        const std::vector<float> expected = weights(ranks, experiment);
        for (const bool overlap : {true, false}) {
            experiment.comm.overlap = overlap;
            EXPECT_EQ(weights(ranks, shared_out(experiment)), expected) << ranks << " ranks, overlap " << overlap;
        }
    }
    experiment.optim.folded_momentum = true;
    EXPECT_EQ(weights(3, shared_out(experiment)), weights(3, experiment));
}

TEST_F(ShardedTest, OnSeveralNodesToo) {
    Experiment experiment = small("nodes");
    for (const int ranks_per_node : {1, 2, 3}) {
        const TrainOptions options{.ranks_per_node = ranks_per_node};
        const std::vector<float> expected = weights(4, experiment, options);
        EXPECT_EQ(weights(4, shared_out(experiment), options), expected) << ranks_per_node << " ranks a node";
        if (ranks_per_node != 2) continue;
        experiment.comm.wire = "bf16";
        const std::vector<float> rounded = weights(4, experiment, options);
        EXPECT_EQ(weights(4, shared_out(experiment), options), rounded) << ranks_per_node << " ranks a node, bf16";
        experiment.comm.wire = "fp32";
    }
}

TEST_F(ShardedTest, AnyWorldGivesTheSameBits) {
    Experiment experiment = small("any-world");
    experiment.run.reproducible = "any_world";
    experiment.batch.global = 32;
    const std::vector<float> expected = weights(1, experiment);
    for (const int ranks : {1, 2, 4}) EXPECT_EQ(weights(ranks, shared_out(experiment)), expected) << ranks << " ranks";
}

TEST_F(ShardedTest, TheStateOfARankShrinksAndTheStartAndTheReportSaySo) {
    Experiment experiment = shared_out(small("memory"));
    experiment.train.duration.amount = 1.0;
    experiment.lr.warmup.amount = 0.0;
    experiment.report.html = true;
    TrainOptions options;
    options.after_step = [](int64_t, Replica& replica, const World& world) {
        const auto whole = static_cast<size_t>(replica.arena().total_count());
        if (3 * replica.arena().state(0).size() < whole + 48 * 100) return;
        throw std::runtime_error(fmt::format("rank {} keeps {} of {}", world.rank, replica.arena().state(0).size(), whole));
    };
    for (const RankResult& result : train(3, experiment, options)) EXPECT_FALSE(result.failed) << result.message;
    EXPECT_THAT(read_file(fs::path(experiment.run.dir) / "report.html"),
                AllOf(HasSubstr("optimizer state"), HasSubstr("per rank, shared out over 3 ranks of this node")));
}

TEST_F(ShardedTest, BackendsWithoutMemoryOfTheNodeAreRefusedBeforeTheFirstStep) {
    TrainOptions options;
    options.after_step = [](int64_t, Replica&, const World&) { FAIL() << "a step was made"; };
    for (const char* backend : {"tcp", "gloo"}) {
        Experiment experiment = shared_out(small("refused"));
        experiment.comm.backend = backend;
        for (const RankResult& result : train(2, experiment, options)) {
            EXPECT_TRUE(result.failed);
            EXPECT_THAT(result.message,
                        AllOf(HasSubstr("optim.sharded=node"), HasSubstr(backend), HasSubstr("comm.backend=native")));
        }
    }
}

TEST_F(ShardedTest, CheckpointsAreTheSameFilesAndEitherKindGoesOnFromThem) {
    Experiment whole = small("whole");
    whole.checkpoint.every = Duration{Duration::Unit::iterations, 1.0};
    whole.checkpoint.keep_last = 100;
    Experiment sharded = shared_out(whole);
    sharded.run.dir = folder("sharded").string();
    const std::vector<float> expected = weights(3, whole);
    ASSERT_EQ(weights(3, sharded), expected);
    for (int64_t step = 1; step <= 7; ++step) {
        for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
            EXPECT_EQ(read_file(checkpoint(sharded, step) / file), read_file(checkpoint(whole, step) / file)) << file << step;
        }
    }
    for (const int64_t step : {1, 4}) {
        Experiment next = whole;
        next.run.dir = folder(fmt::format("whole-from-{}", step)).string();
        next.run.resume = checkpoint(sharded, step).string();
        EXPECT_EQ(weights(3, next), expected) << "whole from step " << step;
        next = shared_out(whole);
        next.run.dir = folder(fmt::format("sharded-from-{}", step)).string();
        next.run.resume = checkpoint(whole, step).string();
        EXPECT_EQ(weights(3, next), expected) << "shared out from step " << step;
        next.run.resume = checkpoint(sharded, step).string();
        next.run.dir = folder(fmt::format("two-from-{}", step)).string();
        const std::vector<float> on_two = weights(2, next);
        next.optim.sharded = "off";
        next.run.dir = folder(fmt::format("two-whole-from-{}", step)).string();
        EXPECT_EQ(on_two, weights(2, next)) << "on another number of ranks from step " << step;
    }
}

// Rank 1 spoils the one copy of the first weight after step 2.
void spoil(int64_t step, Replica& replica, const World& world) {
    if (step == 2 && world.rank == 1) replica.arena().values()[0] = std::numeric_limits<float>::quiet_NaN();
}

TEST_F(ShardedTest, WhatIsNotFiniteStopsAllRanksAtOneStep) {
    for (const RankResult& result : train(3, shared_out(small("stops")), {.after_step = spoil})) {
        EXPECT_TRUE(result.failed);
        EXPECT_THAT(result.message, AllOf(HasSubstr("step 3"), HasSubstr("infinite: fc.weight")));
    }
}

TEST_F(ShardedTest, AStepThatIsPassedOverLeavesNoTraceInAnyWeight) {
    Experiment experiment = shared_out(small("passed-over"));
    experiment.train.stop_on_nan = false;
    std::vector<float> before;  // each rank its own
    TrainOptions options;
    options.after_step = [&](int64_t step, Replica& replica, const World& world) {
        const std::span<const float> values = replica.arena().values();
        if (step == 2) before.assign(values.begin(), values.end());
        spoil(step, replica, world);
        if (step == 6 && std::memcmp(&before[1], &values[1], (values.size() - 1) * sizeof(float)) != 0)
            throw std::runtime_error("a weight has changed");
    };
    for (const RankResult& result : train(3, experiment, options)) EXPECT_FALSE(result.failed) << result.message;
}

}  // namespace
}  // namespace lockstep
