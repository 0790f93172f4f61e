// Saving while training goes on: the same files as when training waits, older ones safe when the disk refuses.
#include "trainer/checkpoint_saver.h"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/files.h"
#include "tests/unit/trainer/training_run.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class SaverTest : public TrainingTest {
protected:
    // A checkpoint after each of six steps, with batch norm and momentum.
    Experiment saving(const std::string& name) const {
        Experiment experiment = tiny(name);
        experiment.model.arch = "tiny_bn";
        experiment.train.duration.amount = 6.0;
        experiment.checkpoint.every = Duration{Duration::Unit::iterations, 1.0};
        experiment.checkpoint.keep_last = 100;
        return experiment;
    }
    static fs::path checkpoints(const Experiment& experiment) { return fs::path(experiment.run.dir) / "checkpoints"; }
    // "step-000000003/model.safetensors" -> bytes
    static std::map<std::string, std::string> files_of(const fs::path& folder) {
        std::map<std::string, std::string> files;
        for (const auto& item : fs::recursive_directory_iterator(folder)) {
            if (item.is_regular_file()) files[fs::relative(item.path(), folder)] = read_file(item.path());
        }
        return files;
    }
    static void expect_done(const std::vector<RankResult>& results) {
        for (const RankResult& result : results) {
            EXPECT_FALSE(result.failed) << result.message;
            EXPECT_EQ(result.exit_code, 0);
        }
    }
    // A file lies where the checkpoints should, from one step on; from another the folder is back.
    static TrainOptions without_a_folder(const Experiment& experiment, int64_t from, int64_t until) {
        TrainOptions options;
        options.after_step = [folder = checkpoints(experiment), from, until](int64_t step, Replica&, const World& world) {
            const fs::path aside = folder.string() + ".aside";
            if (!world.is_leader()) return;
            if (step == from) {
                while (!fs::exists(folder / fmt::format("step-{:09}", from))) usleep(1000);  // of the step before
                fs::rename(folder, aside);
                std::ofstream(folder) << "in the way";
            }
            if (step == until) {
                fs::remove(folder);
                fs::rename(aside, folder);
            }
        };
        return options;
    }
};

TEST_F(SaverTest, WhileTrainingGoesOnTheSameBytesAreWrittenAsWhenItWaits) {
    for (const int ranks : {1, 2}) {
        for (const std::string sharded : {"off", "node"}) {
            std::map<std::string, std::string> files[2];
            for (const bool async : {false, true}) {
                Experiment experiment = saving(fmt::format("{}-{}-{}", ranks, sharded, async));
                experiment.checkpoint.async = async;
                experiment.optim.sharded = sharded;
                expect_done(train(ranks, experiment));
                files[async ? 1 : 0] = files_of(checkpoints(experiment));
            }
            EXPECT_EQ(files[0].size(), 6U * 4U);
            EXPECT_TRUE(files[0] == files[1]) << ranks << " ranks, optim.sharded " << sharded;
        }
    }
}

TEST_F(SaverTest, ARefusedCheckpointIsPassedOverAndTheOlderOnesStay) {
    Experiment experiment = saving("refused");
    experiment.checkpoint.async = false;
    expect_done(train(2, experiment, without_a_folder(experiment, 2, 4)));
    std::vector<std::string> names;
    for (const auto& item : fs::directory_iterator(checkpoints(experiment))) names.push_back(item.path().filename());
    EXPECT_THAT(names, ::testing::UnorderedElementsAre("step-000000001", "step-000000002", "step-000000005", "step-000000006"));
}

TEST_F(SaverTest, ARefusedLastCheckpointEndsTheRunOnAllRanksWithPathAndReason) {
    for (const bool async : {false, true}) {
        Experiment experiment = saving(fmt::format("last-{}", async));
        experiment.checkpoint.async = async;
        for (const RankResult& result : train(2, experiment, without_a_folder(experiment, 3, 1000))) {
            EXPECT_TRUE(result.failed);
            EXPECT_THAT(result.message, HasSubstr(checkpoints(experiment).string()));
        }
        EXPECT_EQ(read_file(checkpoints(experiment)), "in the way");
        EXPECT_TRUE(fs::exists(checkpoints(experiment).string() + ".aside/step-000000002"));
    }
}

TEST_F(SaverTest, WeightsThatAreNotFiniteEndTheRunAndAreNeverSaved) {
    Experiment experiment = saving("infinite");
    TrainOptions options;
    options.after_step = [](int64_t step, Replica& replica, const World&) {
        if (step == 2) replica.arena().value(0)[0] = INFINITY;
    };
    for (const RankResult& result : train(2, experiment, options)) {
        EXPECT_TRUE(result.failed);
        EXPECT_THAT(result.message, HasSubstr("after step 2 tensor"));
    }
    EXPECT_TRUE(fs::exists(checkpoints(experiment) / "step-000000002"));
    EXPECT_FALSE(fs::exists(checkpoints(experiment) / "step-000000003"));
}

}  // namespace
}  // namespace lockstep
