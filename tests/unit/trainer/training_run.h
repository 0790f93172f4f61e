// Verbs for tests that train for real: ranks are processes, the network and the data are tiny.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "configs/experiment.h"
#include "trainer/run_training.h"

namespace lockstep {

struct RankResult {
    bool failed = false;
    std::string message;              // of the failure
    int exit_code = -1;               // where it did not fail
    std::vector<float> weights;       // after the last step: all parameters, plain
    std::vector<double> evaluations;  // count, loss, top-1, top-5 of each
};

struct TrainOptions {
    std::function<void(int64_t step, Replica& replica, const World& world)> after_step;
    std::function<void(Experiment& experiment, const World& world)> for_rank;  // what one rank does differently
    int ranks_per_node = 0;                                                    // 0: all on one node
    double limit_s = 60.0;
};

class TrainingTest : public ::testing::Test {
protected:
    TrainingTest();
    ~TrainingTest() override;

    std::filesystem::path folder(const std::string& name) const { return folder_ / name; }

    // 24 images a step as 6 virtual workers of 4, 20 steps over 60 synthetic images (2.5 steps an epoch, remainder kept), no batch
    // norm, rate 0.05, no validation, no checkpoints.
    Experiment tiny(const std::string& run_name) const;

    static std::vector<RankResult> train(int ranks, const Experiment& experiment, const TrainOptions& options = {});
    // Rank 0's weights; fails the test when a rank failed or ranks differ.
    static std::vector<float> weights(int ranks, const Experiment& experiment, const TrainOptions& options = {});

private:
    std::filesystem::path folder_;
};

double relative_difference(const std::vector<float>& left, const std::vector<float>& right);

}  // namespace lockstep
