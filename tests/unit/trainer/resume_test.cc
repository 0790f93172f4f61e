// Runs that stop, are stopped, diverge or start from something else.
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <thread>

#include <gmock/gmock.h>

#include <fmt/format.h>

#include "core/files.h"
#include "interop/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/unit/trainer/training_run.h"
#include "trainer/checkpoint.h"
#include "trainer/recipe.h"
#include "trainer/resume.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class ResumeTest : public TrainingTest {
protected:
    // Batch norm, momentum, dropout, a rate that changes, a step per checkpoint, epochs of 2.5 steps.
    Experiment resumable(const std::string& name) const {
        Experiment experiment = tiny(name);
        experiment.model.arch = "tiny_bn";
        experiment.lr.schedule = "cosine";
        experiment.lr.warmup = {Duration::Unit::iterations, 3.0};
        experiment.lr.warmup_from = 0.01;
        experiment.train.duration.amount = 7.0;
        experiment.checkpoint.every = Duration{Duration::Unit::iterations, 1.0};
        experiment.checkpoint.keep_last = 100;
        return experiment;
    }
    static std::string step_name(int64_t step) { return fmt::format("step-{:09}", step); }
};

TEST_F(ResumeTest, FromEveryStepTheRunEndsWithTheBitsOfAnUnbrokenOne) {
    for (const bool folded : {false, true}) {
        Experiment experiment = resumable(fmt::format("unbroken-{}", folded));
        experiment.optim.folded_momentum = folded;
        experiment.train.backend = folded ? "onednn" : "reference";
        const std::vector<float> expected = weights(2, experiment);
        const fs::path checkpoints = fs::path(experiment.run.dir) / "checkpoints";
        for (int64_t step = 1; step < 7; ++step) {
            experiment.run.dir = folder(fmt::format("from-{}-{}", folded, step)).string();
            experiment.run.resume = (checkpoints / step_name(step)).string();
            EXPECT_EQ(weights(2, experiment), expected) << "from step " << step;
        }
    }
}

std::vector<int64_t> steps_in(const fs::path& folder) {
    std::vector<int64_t> steps;
    for (const auto& [step, path] : list_checkpoints(folder)) steps.push_back(step);
    return steps;
}

// Else the abandoned steps would count as newer: what the run saves would be removed at once, and `auto` would return to them.
TEST_F(ResumeTest, ARunThatGoesBackLeavesTheAbandonedStepsBehind) {
    Experiment experiment = resumable("back");
    experiment.checkpoint.keep_last = 2;
    const std::vector<float> expected = weights(1, experiment);
    const fs::path checkpoints = fs::path(experiment.run.dir) / "checkpoints";
    ASSERT_EQ(steps_in(checkpoints), (std::vector<int64_t>{7, 6}));
    experiment.run.resume = (checkpoints / step_name(6)).string();
    EXPECT_EQ(weights(1, experiment), expected);
    EXPECT_EQ(steps_in(checkpoints), (std::vector<int64_t>{7, 6}));
    EXPECT_EQ(steps_in(checkpoints.parent_path() / "checkpoints.old-1"), (std::vector<int64_t>{7}));
}

TEST_F(ResumeTest, ALaterStartOfOneJobGoesOnFromWhatTheJobHasSavedWhateverItsFirstStartWished) {
    Experiment experiment = resumable("again");
    weights(1, experiment);
    const fs::path checkpoints = fs::path(experiment.run.dir) / "checkpoints";
    for (const std::string& wish : {std::string("never"), (checkpoints / step_name(3)).string()}) {
        experiment.run.resume = wish;
        EXPECT_EQ(choose_checkpoint(experiment, true), checkpoints / step_name(7)) << wish;
    }
    EXPECT_EQ(choose_checkpoint(experiment, false), checkpoints / step_name(3));
    EXPECT_EQ(choose_checkpoint(experiment, true), checkpoints / step_name(3)) << "nothing of its own yet";
    experiment.run.resume = "never";
    EXPECT_EQ(choose_checkpoint(experiment, false), std::nullopt);
    EXPECT_EQ(choose_checkpoint(experiment, true), std::nullopt);
    EXPECT_EQ(steps_in(checkpoints), std::vector<int64_t>());
}

TEST_F(ResumeTest, AnotherPipelineIsRefusedByEntryAndOption) {
    Experiment experiment = tiny("pipeline");
    const TransformConfig crop{.name = "random_crop", .size = {32}, .pad = 4}, flip{.name = "hflip", .probability = 0.5};
    experiment.data.train.pipeline = {crop, flip};
    const Manifest manifest{.step = 4, .result_keys = result_keys(experiment, 10)};
    const auto refusal = [&](const std::vector<TransformConfig>& pipeline) {
        experiment.data.train.pipeline = pipeline;
        return testing_support::error_of<ConfigError>(
            [&] { require_continuation(manifest, result_keys(experiment, 10), manifest.train_fingerprint, "step-4"); });
    };
    TransformConfig other = flip;
    other.probability = 0.25;
    EXPECT_THAT(refusal({crop, other}), HasSubstr("step-4: entry 2 of data.train.pipeline, hflip, was probability 0.5 there and is "
                                                  "probability 0.25 now, so"));
    other.words["filter"] = "area";
    EXPECT_THAT(refusal({crop, other}), HasSubstr("probability 0.25, \"filter\": \"area\" now"));
    other = crop;
    other.size = {28};
    EXPECT_THAT(refusal({other, flip}),
                HasSubstr("entry 1 of data.train.pipeline, random_crop, was size [32] there and is size [28]"));
    EXPECT_THAT(refusal({flip, crop}), HasSubstr("entry 1 of data.train.pipeline was random_crop there and is hflip now"));
    EXPECT_THAT(refusal({crop}), HasSubstr("entry 2 of data.train.pipeline was hflip there and is absent now"));
    EXPECT_THAT(refusal({crop, flip, flip}), HasSubstr("entry 3 of data.train.pipeline was absent there and is hflip now"));
}

TEST_F(ResumeTest, AnotherNumberOfRanksGoesOnWithTheSameSamples) {
    Experiment experiment = resumable("two");
    experiment.model.arch = "tiny_cnn";
    const std::vector<float> expected = weights(2, experiment);
    experiment.run.resume = (fs::path(experiment.run.dir) / "checkpoints" / step_name(4)).string();
    for (const int ranks : {1, 3}) {
        experiment.run.dir = folder(fmt::format("on-{}", ranks)).string();
        EXPECT_LT(relative_difference(weights(ranks, experiment), expected), 1e-5) << ranks;
    }
}

TEST_F(ResumeTest, ASignalToOneRankStopsAllAtOneStepWithACheckpoint) {
    Experiment unbroken = resumable("reference");
    unbroken.checkpoint.every.reset();
    const std::vector<float> expected = weights(2, unbroken);
    for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) {
        Experiment experiment = resumable(fmt::format("signal-{}", signal));
        experiment.checkpoint.every.reset();
        TrainOptions options;
        options.after_step = [signal](int64_t step, Replica&, const World& world) {
            if (step == 2 && world.rank == 1) raise(signal);
        };
        for (const RankResult& result : train(2, experiment, options)) {
            EXPECT_FALSE(result.failed) << result.message;
            EXPECT_EQ(result.exit_code, 138);
        }
        EXPECT_TRUE(fs::exists(fs::path(experiment.run.dir) / "checkpoints" / step_name(4)));
        EXPECT_EQ(weights(2, experiment), expected) << "the same command continues";
    }
}

// The wish comes after the step that an evaluation follows, when its control has been read: the evaluation is what stops.
TEST_F(ResumeTest, AWishDuringAnEvaluationStopsItAndTheContinuedRunMakesUpForIt) {
    Experiment unbroken = resumable("evaluated");
    unbroken.data.val.source = "synthetic";
    unbroken.data.val.synthetic_size = 200;
    unbroken.train.eval_every = Duration{Duration::Unit::iterations, 2.0};
    const std::vector<RankResult> expected = train(2, unbroken);
    ASSERT_EQ(expected.front().evaluations.size(), 4U * 4U) << expected.front().message;  // steps 2, 4, 6 and the last
    for (const int64_t last_step : {3, 6}) {
        for (const bool saves : {true, false}) {
            Experiment experiment = unbroken;
            experiment.run.dir = folder(fmt::format("evaluated-{}-{}", last_step, saves)).string();
            if (!saves) experiment.checkpoint.every.reset();
            TrainOptions options;
            options.after_step = [last_step](int64_t step, Replica&, const World& world) {
                if (step == last_step && world.rank == 1) raise(SIGTERM);
            };
            const std::vector<RankResult> stopped = train(2, experiment, options);
            const size_t told = stopped.front().evaluations.size();
            EXPECT_EQ(told, last_step == 3 ? 4U : 12U) << "that of the last step is not among them";
            const fs::path checkpoints = fs::path(experiment.run.dir) / "checkpoints";
            const fs::path checkpoint = checkpoints / step_name(last_step + 1);
            EXPECT_TRUE(verify_checkpoint(checkpoint).metrics.empty());
            const std::vector<RankResult> continued = train(2, experiment);
            for (size_t rank = 0; rank < 2; ++rank) {
                EXPECT_EQ(stopped[rank].exit_code, 138) << stopped[rank].message;
                EXPECT_EQ(continued[rank].exit_code, 0) << continued[rank].message;
                const std::vector<double> rest(expected[rank].evaluations.begin() + static_cast<std::ptrdiff_t>(told),
                                               expected[rank].evaluations.end());
                EXPECT_EQ(continued[rank].evaluations, rest);
                if (last_step == 3) {
                    EXPECT_EQ(continued[rank].weights, expected[rank].weights);
                }
            }
            EXPECT_EQ(verify_checkpoint(checkpoint).metrics.empty(), !saves) << "made again with its metrics, where it was due";
        }
    }
}

TEST_F(ResumeTest, AWishInTheLastStepLeavesAFinishedRunWithItsCheckpoint) {
    Experiment experiment = resumable("last");
    experiment.checkpoint.every->amount = 1000.0;
    TrainOptions options;
    options.after_step = [](int64_t step, Replica&, const World& world) {
        if (step == 5 && world.rank == 1) raise(SIGTERM);
    };
    for (const RankResult& result : train(2, experiment, options)) EXPECT_EQ(result.exit_code, 0) << result.message;
    EXPECT_TRUE(fs::exists(fs::path(experiment.run.dir) / "checkpoints" / step_name(7)));
}

TEST_F(ResumeTest, AFinishedRunStartedAgainChangesNothing) {
    Experiment experiment = resumable("finished");
    experiment.data.val.source = "synthetic";
    experiment.data.val.synthetic_size = 21;
    experiment.train.eval_every = Duration{Duration::Unit::iterations, 7.0};
    EXPECT_EQ(train(2, experiment).front().evaluations.size(), 4U);
    const fs::path newest = fs::path(experiment.run.dir) / "checkpoints" / step_name(7);
    const auto written = fs::last_write_time(newest);
    for (const RankResult& result : train(2, experiment)) {
        EXPECT_EQ(result.exit_code, 0) << result.message;
        EXPECT_TRUE(result.evaluations.empty()) << "its result is in the checkpoint";
    }
    EXPECT_EQ(fs::last_write_time(newest), written);
    EXPECT_EQ(verify_checkpoint(newest).metrics.at("val.count"), 21.0);
}

TEST_F(ResumeTest, AWishBeforeTheFirstStepLeavesACheckpointOfItsStart) {
    Experiment experiment = resumable("at-once");
    TrainOptions options;
    options.for_rank = [](Experiment&, const World& world) {
        if (world.rank != 1) return;
        // Comes when the handlers are there but long before a step: while the data is looked at and the ranks connect.
        std::thread([] {
            struct sigaction present {};
            while (sigaction(SIGTERM, nullptr, &present) == 0 && present.sa_handler == SIG_DFL) usleep(50);
            kill(getpid(), SIGTERM);
        }).detach();
    };
    for (const RankResult& result : train(2, experiment, options)) EXPECT_EQ(result.exit_code, 138) << result.message;
    const fs::path checkpoints = fs::path(experiment.run.dir) / "checkpoints";
    const int64_t step = CheckpointFolder({.folder = checkpoints}).latest()->manifest.step;
    EXPECT_LE(step, 1);
    Experiment whole = resumable("whole");
    EXPECT_EQ(weights(2, experiment), weights(2, whole));
}

TEST_F(ResumeTest, TheSameSignalLaterOnceMoreEndsARankAtOnceButNotSooner) {
    for (const auto& [pause_ms, code] : {std::pair(0, 138), std::pair(600, 143)}) {
        Experiment experiment = resumable(fmt::format("twice-{}", pause_ms));
        TrainOptions options;
        options.after_step = [pause_ms = pause_ms](int64_t step, Replica&, const World&) {
            if (step != 2) return;
            raise(SIGTERM);
            usleep(1000 * static_cast<useconds_t>(pause_ms));
            raise(SIGTERM);
        };
        const RankResult result = train(1, experiment, options).front();
        if (code == 138) {
            EXPECT_EQ(result.exit_code, 138) << result.message;
        }
        if (code == 143) {
            EXPECT_TRUE(result.failed) << "it ended without a word";
        }
    }
}

TEST_F(ResumeTest, ALossThatIsNotFiniteOnOneRankStopsAllBeforeTheUpdate) {
    Experiment experiment = resumable("poisoned");
    experiment.checkpoint.keep_last = 2;
    TrainOptions options;
    options.after_step = [](int64_t step, Replica& replica, const World& world) {
        EXPECT_LT(step, 4);
        if (step == 3 && world.rank == 1) replica.arena().values()[0] = std::numeric_limits<float>::quiet_NaN();
    };
    for (const RankResult& result : train(2, experiment, options)) {
        EXPECT_TRUE(result.failed);
        EXPECT_THAT(result.message, HasSubstr("step 4"));
        EXPECT_THAT(result.message, HasSubstr("rank 1"));
        EXPECT_THAT(result.message, HasSubstr("infinite: fc.weight"));
        EXPECT_THAT(result.message, HasSubstr("it began on rank 1: the parameter fc.weight was not finite before the step"));
    }
    EXPECT_EQ(CheckpointFolder({.folder = fs::path(experiment.run.dir) / "checkpoints"}).latest()->manifest.step, 4);
}

TEST_F(ResumeTest, OfSeveralRanksWithABadLossNoneIsBlamedAlone) {
    Experiment experiment = resumable("several");
    TrainOptions options;
    options.after_step = [](int64_t step, Replica& replica, const World& world) {
        if (step == 3 && (world.rank == 1 || world.rank == 2))
            replica.arena().values()[0] = std::numeric_limits<float>::quiet_NaN();
    };
    for (const RankResult& result : train(4, experiment, options)) {
        EXPECT_TRUE(result.failed);
        EXPECT_THAT(result.message, HasSubstr("step 4: the losses of 2 ranks are NaN or infinite"));
        EXPECT_THAT(result.message,
                    HasSubstr("it began on rank 1: the parameter fc.weight was not finite before the step; rank 2:"));
    }
}

// The step is passed over on all ranks alike, and the run goes on as if there had been none.
TEST_F(ResumeTest, WithoutStopOnNanABadStepIsAppliedOnNoRank) {
    Experiment experiment = resumable("passed-over");
    experiment.train.stop_on_nan = false;
    const fs::path notes = folder("notes");
    TrainOptions options;
    options.after_step = [notes](int64_t step, Replica& replica, const World& world) {
        float& value = replica.arena().values()[0];
        static float kept = 0.0F;
        if (step == 3) kept = value;
        if (step == 3 && world.rank == 1) value = std::numeric_limits<float>::quiet_NaN();
        if (step == 4 && world.rank == 1) value = kept;
        if (step == 4 && value != kept) std::ofstream(notes) << "the bad step was applied";
        if (step == 5 && value == kept) std::ofstream(notes) << "the next step was not";
    };
    weights(2, experiment, options);
    EXPECT_FALSE(fs::exists(notes)) << read_file(notes);
}

TEST_F(ResumeTest, ADivergingRateEndsBeforeABadCheckpoint) {
    Experiment experiment = resumable("diverging");
    experiment.lr.base = 1e30;
    for (const RankResult& result : train(2, experiment)) {
        EXPECT_TRUE(result.failed);
        EXPECT_THAT(result.message, HasSubstr("step"));
    }
    for (const auto& item : fs::directory_iterator(fs::path(experiment.run.dir) / "checkpoints")) {
        const auto file = SafetensorsFile::open(item.path() / "model.safetensors");
        for (const NamedTensor& tensor : file->tensors()) {
            for (size_t at = 0; at < tensor.bytes.size(); at += 4) {
                float value = 0.0F;
                std::memcpy(&value, tensor.bytes.data() + at, 4);
                ASSERT_TRUE(std::isfinite(value)) << tensor.name;
            }
        }
    }
}

TEST_F(ResumeTest, AnotherBatchSeedOrNetworkIsRefusedByName) {
    Experiment experiment = resumable("first");
    experiment.lr.warmup.amount = 0.0;
    experiment.train.duration.amount = 2.0;
    weights(1, experiment);
    experiment.train.duration.amount = 4.0;
    Experiment other = experiment;
    other.batch.global = 12;
    EXPECT_THAT(train(1, other).front().message, HasSubstr("batch.global was 24 there and is 12 now"));
    other = experiment;
    other.run.seed = 1;
    EXPECT_THAT(train(1, other).front().message, HasSubstr("run.seed was 42 there and is 1 now"));
    other = experiment;
    other.model.arch = "tiny_cnn";
    EXPECT_THAT(train(1, other).front().message, HasSubstr("model.arch was tiny_bn there and is tiny_cnn now"));
    other = experiment;
    other.model.zero_init_last_bn = !experiment.model.zero_init_last_bn;
    EXPECT_THAT(train(1, other).front().message, HasSubstr("model.zero_init_last_bn was true there and is false now"));
    other = experiment;
    other.data.train.synthetic_size = 61;
    EXPECT_THAT(train(1, other).front().message, HasSubstr("the training data's fingerprint"));
    EXPECT_FALSE(train(1, experiment).front().failed) << "a longer run continues";
}

TEST(Continuation, AnotherPrecisionIsRefusedByName) {
    Experiment experiment;
    const Manifest manifest{.result_keys = result_keys(experiment, 10), .train_fingerprint = 7};
    require_continuation(manifest, manifest.result_keys, 7, "step-4");
    experiment.train.precision = "bf16";
    try {
        require_continuation(manifest, result_keys(experiment, 10), 7, "step-4");
        FAIL() << "nothing was refused";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("train.precision was fp32 there and is bf16 now"));
    }
}

TEST(Continuation, AnotherWireTypeIsRefusedUnlessTheCheckpointIsOlderThanTheKey) {
    Experiment experiment;
    Manifest manifest{.result_keys = result_keys(experiment, 10), .train_fingerprint = 7};
    experiment.comm.wire = "bf16";
    EXPECT_THROW(require_continuation(manifest, result_keys(experiment, 10), 7, "step-4"), ConfigError);
    std::erase_if(manifest.result_keys, [](const auto& entry) { return entry.first == "comm.wire"; });
    EXPECT_NO_THROW(require_continuation(manifest, result_keys(experiment, 10), 7, "step-4"));
}

class WeightsTest : public ResumeTest {
protected:
    // A file of weights that fits tiny_bn.
    std::string made_weights() {
        Experiment experiment = resumable("donor");
        experiment.lr.warmup.amount = 0.0;
        experiment.train.duration.amount = 1.0;
        weights(1, experiment);
        return (fs::path(experiment.run.dir) / "checkpoints" / step_name(1) / "model.safetensors").string();
    }
};

TEST_F(WeightsTest, ForeignWeightsThatDoNotFitAreListedAndOnlyLoadedOnRequest) {
    Experiment experiment = tiny("foreign");
    experiment.model.weights = made_weights();
    experiment.train.duration.amount = 1.0;
    const RankResult refused = train(1, experiment).front();
    EXPECT_TRUE(refused.failed);
    EXPECT_THAT(refused.message, HasSubstr("nothing was loaded"));
    EXPECT_THAT(refused.message, HasSubstr("extra"));
    EXPECT_THAT(refused.message, HasSubstr("model.partial_weights=true"));
    experiment.model.partial_weights = true;
    EXPECT_FALSE(train(1, experiment).front().failed);
    experiment.model.arch = "tiny_bn";
    experiment.model.partial_weights = false;
    EXPECT_FALSE(train(2, experiment).front().failed);
}

TEST_F(WeightsTest, StartWeightsWithNaNAreRefused) {
    const std::string path = made_weights();
    std::string bytes = read_file(path);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(bytes.data() + bytes.size() - 4, &nan, 4);
    const fs::path bad = folder("bad.safetensors");
    std::ofstream(bad, std::ios::binary) << bytes;
    Experiment experiment = tiny("nan");
    experiment.model.arch = "tiny_bn";
    experiment.model.weights = bad.string();
    EXPECT_THAT(train(1, experiment).front().message, HasSubstr("holds NaN or Inf"));
}

}  // namespace
}  // namespace lockstep
