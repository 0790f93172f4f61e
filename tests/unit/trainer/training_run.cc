#include "tests/unit/trainer/training_run.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "core/files.h"
#include "core/log.h"
#include "interop/arena_tensors.h"
#include "tests/support/process_group.h"

namespace lockstep {

namespace {

std::vector<float> plain_values(const Replica& replica) {
    std::vector<float> values;
    const PlainTensors plain(replica.backend(), replica.arena(), replica.arena().values(), EntrySet::all);
    for (const NamedTensor& tensor : plain.tensors()) {
        const auto* data = reinterpret_cast<const float*>(tensor.bytes.data());
        values.insert(values.end(), data, data + tensor.bytes.size() / sizeof(float));
    }
    return values;
}

template <typename T>
void append(std::string& text, const std::vector<T>& values) {
    const uint64_t count = values.size();
    text.append(reinterpret_cast<const char*>(&count), sizeof count);
    text.append(reinterpret_cast<const char*>(values.data()), count * sizeof(T));
}

template <typename T>
std::vector<T> extract(std::string_view& text) {
    uint64_t count = 0;
    std::memcpy(&count, text.data(), sizeof count);
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), text.data() + sizeof count, count * sizeof(T));
    text.remove_prefix(sizeof count + count * sizeof(T));
    return values;
}

class Watcher final : public StepObserver {
public:
    Watcher(const TrainOptions& options, const World& world, int64_t last_step)
        : options_(options), world_(world), last_step_(last_step) {}

    void after_step(int64_t step, Replica& replica) override {
        if (options_.after_step) options_.after_step(step, replica, world_);
        if (step == last_step_) weights = plain_values(replica);
    }
    void after_evaluation(int64_t, const EvaluationResult& result) override {
        evaluations.insert(evaluations.end(), {static_cast<double>(result.count), result.loss, result.top1, result.top5});
    }

    std::vector<float> weights;
    std::vector<double> evaluations;

private:
    const TrainOptions& options_;
    const World& world_;
    const int64_t last_step_;
};

// On one machine that plays several.
World placed(World world, int ranks_per_node) {
    if (ranks_per_node == 0) return world;
    world.node = world.rank / ranks_per_node;
    world.node_count = (world.size + ranks_per_node - 1) / ranks_per_node;
    world.local_rank = world.rank % ranks_per_node;
    world.local_size = std::min(ranks_per_node, world.size - world.node * ranks_per_node);
    return world;
}

std::string run_rank(Experiment experiment, const TrainOptions& options, const World& world, Store& store) {
    log::init({.rank = world.rank, .world_size = world.size, .quiet = true});
    if (options.for_rank) options.for_rank(experiment, world);
    Watcher watcher(options, world, static_cast<int64_t>(experiment.train.duration.amount) - 1);
    const ExitCode code =
        run_training({.experiment = experiment, .world = world, .store = store, .command = "test", .observer = &watcher});
    std::string text;
    append(text, std::vector<int>{static_cast<int>(code)});
    append(text, watcher.weights);
    append(text, watcher.evaluations);
    return text;
}

}  // namespace

TrainingTest::TrainingTest()
    : folder_(fs::path(::testing::TempDir()) /
              fmt::format("training-{}-{}", getpid(), ::testing::UnitTest::GetInstance()->random_seed())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
}

TrainingTest::~TrainingTest() { fs::remove_all(folder_); }

Experiment TrainingTest::tiny(const std::string& run_name) const {
    Experiment experiment;
    experiment.run.name = run_name;
    experiment.run.dir = folder(run_name).string();
    experiment.model.arch = "tiny_cnn";
    experiment.model.num_classes = 4;
    experiment.model.image_size = 12;
    experiment.data.train.source = "synthetic";
    experiment.data.train.synthetic_size = 60;
    experiment.data.workers = 1;
    experiment.batch.global = 24;
    experiment.batch.per_replica = 4;
    experiment.lr.base = 0.05;
    experiment.lr.base_batch = 24;
    experiment.lr.schedule = "constant";
    experiment.train.duration = {Duration::Unit::iterations, 20.0};
    experiment.train.backend = "reference";
    experiment.train.threads = 1;
    experiment.train.eval_every.reset();
    experiment.train.log_every = 1000;
    experiment.checkpoint.every.reset();
    experiment.comm.probe = "never";
    experiment.comm.tuning = folder("tuning").string();
    experiment.report.html = false;
    experiment.resolved_yaml = "name: tiny\n";
    experiment.hash = "tiny";
    return experiment;
}

std::vector<RankResult> TrainingTest::train(int ranks, const Experiment& experiment, const TrainOptions& options) {
    const testing_support::ProcessGroup group{.size = ranks, .limit_s = options.limit_s};
    const auto outcomes = group.run([&](const World& world, Store& store) {
        return run_rank(experiment, options, placed(world, options.ranks_per_node), store);
    });
    std::vector<RankResult> results;
    for (const auto& outcome : outcomes) {
        RankResult result{.failed = outcome.threw || outcome.signal != 0 || outcome.timed_out, .message = outcome.text};
        if (outcome.signal != 0) result.message = fmt::format("signal {}", outcome.signal);
        if (outcome.timed_out) result.message = "timed out";
        if (!result.failed && outcome.text.empty()) result = {.failed = true, .message = "ended without a word"};
        if (!result.failed) {
            std::string_view text = outcome.text;
            result.exit_code = extract<int>(text).at(0);
            result.weights = extract<float>(text);
            result.evaluations = extract<double>(text);
        }
        results.push_back(std::move(result));
    }
    return results;
}

std::vector<float> TrainingTest::weights(int ranks, const Experiment& experiment, const TrainOptions& options) {
    const std::vector<RankResult> results = train(ranks, experiment, options);
    for (const RankResult& result : results) {
        EXPECT_FALSE(result.failed) << result.message;
        EXPECT_EQ(result.weights, results.front().weights) << "ranks hold different weights";
    }
    EXPECT_FALSE(results.front().weights.empty());
    return results.front().weights;
}

double relative_difference(const std::vector<float>& left, const std::vector<float>& right) {
    if (left.size() != right.size()) return INFINITY;
    double difference = 0.0;
    double norm = 0.0;
    for (size_t index = 0; index < left.size(); ++index) {
        difference += std::pow(static_cast<double>(left[index]) - static_cast<double>(right[index]), 2);
        norm += std::pow(static_cast<double>(right[index]), 2);
    }
    return std::sqrt(difference / norm);
}

}  // namespace lockstep
