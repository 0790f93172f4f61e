// What a run says about itself, in metrics.jsonl and in its checkpoints: checked against what the steps themselves show.
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/files.h"
#include "report/metrics_file.h"
#include "tests/unit/trainer/training_run.h"
#include "trainer/checkpoint.h"
#include "trainer/control.h"
#include "trainer/course.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

class MetricsTest : public TrainingTest {
protected:
    // Eight steps, epochs of three (the last one short), a line after steps 3, 6 and 8.
    Experiment logging(const std::string& name) const {
        Experiment experiment = tiny(name);
        experiment.lr.schedule = "cosine";
        experiment.lr.warmup = {Duration::Unit::iterations, 2.0};
        experiment.lr.warmup_from = 0.01;
        experiment.train.duration.amount = 8.0;
        experiment.train.log_every = 3;
        return experiment;
    }
    static std::vector<MetricsLine> lines(const Experiment& experiment) {
        std::vector<MetricsLine> found;
        for (const MetricsLine& line : read_metrics(fs::path(experiment.run.dir) / "metrics.jsonl")) {
            if (value(line, "train.loss") >= 0.0) found.push_back(line);
        }
        return found;
    }
    static double value(const MetricsLine& line, const std::string& key) {
        for (const auto& [name, number] : line.values) {
            if (name == key) return number;
        }
        return -1.0;
    }
    static std::vector<double> values(const std::vector<MetricsLine>& lines, const std::string& key) {
        std::vector<double> found;
        for (const MetricsLine& line : lines) found.push_back(value(line, key));
        return found;
    }
    static fs::path checkpoint(const Experiment& experiment, int64_t step) {
        return fs::path(experiment.run.dir) / "checkpoints" / fmt::format("step-{:09}", step);
    }
};

// One step's sums over all ranks.
struct StepSums {
    double loss = 0.0, correct = 0.0, images = 0.0, squares = 0.0;
};

TEST_F(MetricsTest, LinesAreOfAllImagesOfAllRanksSinceTheLineBefore) {
    for (const int ranks : {1, 3}) {
        const Experiment experiment = logging(fmt::format("on-{}", ranks));
        const fs::path notes = folder(fmt::format("notes-{}", ranks));
        TrainOptions options;
        options.after_step = [notes](int64_t, Replica& replica, const World& world) {
            if (world.rank != 0) return;
            const StepControl total = read_control(replica.arena().control());
            double squares = 0.0;
            for (size_t entry = 0; entry < replica.arena().entries().size(); ++entry) {
                if (!is_trainable(replica.arena().entries()[entry].spec.kind)) continue;
                for (const float slope : replica.arena().gradient(entry)) squares += static_cast<double>(slope) * slope;
            }
            std::ofstream(notes, std::ios::app)
                << fmt::format("{} {} {} {}\n", total.loss_sum, total.correct, total.images, squares);
        };
        weights(ranks, experiment, options);
        std::ifstream file(notes);
        std::vector<StepSums> steps;
        for (StepSums sums; file >> sums.loss >> sums.correct >> sums.images >> sums.squares;) steps.push_back(sums);
        ASSERT_EQ(steps.size(), 8U);
        const std::vector<MetricsLine> found = lines(experiment);
        ASSERT_EQ(found.size(), 3U);
        size_t begin = 0;
        for (const MetricsLine& line : found) {
            StepSums sum;
            const size_t end = static_cast<size_t>(line.step) + 1;
            for (; begin < end; ++begin) {
                sum.loss += steps[begin].loss;
                sum.correct += steps[begin].correct;
                sum.images += steps[begin].images;
            }
            EXPECT_EQ(sum.images, begin == 8 ? 48.0 : 60.0);
            EXPECT_NEAR(value(line, "train.loss"), sum.loss / sum.images, 1e-9);
            EXPECT_NEAR(value(line, "train.top1"), sum.correct / sum.images, 1e-9);
            EXPECT_GT(sum.correct, 0.0);
            const StepSums& last = steps[begin - 1];
            EXPECT_NEAR(value(line, "grad_norm"), std::sqrt(last.squares) / last.images, 1e-6);
        }
    }
}

TEST_F(MetricsTest, LinesNameTheLastStepTheEpochsMadeAndTheRateOfThatStep) {
    const Experiment experiment = logging("course");
    weights(1, experiment);
    const std::vector<MetricsLine> found = lines(experiment);
    ASSERT_EQ(found.size(), 3U);
    const Course course = plan_course(experiment, 60);
    for (const auto& [place, step, epoch] : {std::tuple(0, 2, 1.0), std::tuple(1, 5, 2.0), std::tuple(2, 7, 8.0 / 3.0)}) {
        const MetricsLine& line = found[static_cast<size_t>(place)];
        EXPECT_EQ(line.step, step);
        EXPECT_NEAR(line.epoch, epoch, 1e-9);
        EXPECT_NEAR(value(line, "lr"), course.rate_at(step), 1e-9);
    }
}

TEST_F(MetricsTest, AResumedRunWritesTheLinesOfAnUnbrokenOne) {
    Experiment experiment = logging("unbroken");
    experiment.checkpoint.every = Duration{Duration::Unit::iterations, 1.0};
    experiment.checkpoint.keep_last = 100;
    weights(2, experiment);
    const std::vector<MetricsLine> expected = lines(experiment);
    const fs::path from = checkpoint(experiment, 4);  // between two lines
    experiment.run.dir = folder("resumed").string();
    experiment.run.resume = from.string();
    weights(2, experiment);
    const std::vector<MetricsLine> found = lines(experiment);
    ASSERT_EQ(found.size(), 2U);
    for (const char* key : {"train.loss", "train.top1", "lr", "grad_norm"}) {
        const std::vector<double> whole = values(expected, key);
        EXPECT_THAT(values(found, key), ElementsAre(whole[1], whole[2])) << key;
    }
}

TEST_F(MetricsTest, ACheckpointSaysWhereItStandsAndOnlyWhatWasMeasuredThere) {
    Experiment experiment = logging("manifests");
    experiment.data.val.source = "synthetic";
    experiment.data.val.synthetic_size = 21;
    experiment.train.eval_every = Duration{Duration::Unit::iterations, 3.0};
    experiment.checkpoint.every = Duration{Duration::Unit::iterations, 1.0};
    experiment.checkpoint.keep_last = 100;
    weights(2, experiment);
    const Course course = plan_course(experiment, 60);
    for (int64_t step = 1; step <= 8; ++step) {
        SCOPED_TRACE(step);
        const Manifest manifest = verify_checkpoint(checkpoint(experiment, step));
        EXPECT_EQ(manifest.step, step);
        EXPECT_NEAR(manifest.epoch, static_cast<double>(step) / 3.0, 1e-9);
        EXPECT_EQ(manifest.place, course.place_at(step));
        EXPECT_EQ(manifest.steps_per_epoch, 3);
        EXPECT_EQ(manifest.total_steps, 8);
        EXPECT_EQ(manifest.batch_global, 24);
        EXPECT_EQ(manifest.world_size, 2);
        EXPECT_EQ(manifest.seed, experiment.run.seed);
        EXPECT_EQ(manifest.config_hash, experiment.hash);
        EXPECT_EQ(manifest.num_classes, 4);
        EXPECT_NE(manifest.train_fingerprint, 0U);
        EXPECT_THAT(manifest.optimizer, ElementsAre(std::pair<std::string, double>("previous_rate", course.rate_at(step - 1))));
        EXPECT_EQ(manifest.interval.images, step % 3 == 0 || step == 8 ? 0 : step % 3 * 24);
        EXPECT_EQ(manifest.metrics.contains("val.top1"), step % 3 == 0 || step == 8) << "else it is an older evaluation's";
        if (step % 3 == 0 || step == 8) {
            EXPECT_EQ(manifest.metrics.at("val.count"), 21.0);
        }
    }
}

}  // namespace
}  // namespace lockstep
