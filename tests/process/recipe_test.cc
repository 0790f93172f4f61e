// The recipe in real runs: batch, rate, warmup, decay, and that ranks and transports do not change the result.
#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "core/files.h"
#include "interop/safetensors.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

class RecipeTest : public JobTest {
protected:
    // The rate of every step, as logged.
    std::vector<double> rates(int ranks, const std::vector<std::string>& overrides, const std::string& name) const {
        const Outcome outcome = run_job(ranks, overrides, name);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        std::vector<double> values;
        for (const auto& [step, value] : metric("lr", name)) values.push_back(value);
        return values;
    }
    static std::vector<std::string> synthetic(int images, const std::vector<std::string>& more) {
        std::vector<std::string> all = {"data.train.source=synthetic",
                                        "data.train.path=",
                                        "data.val.path=",
                                        "model.num_classes=3",
                                        fmt::format("data.train.synthetic_size={}", images),
                                        "data.train.pipeline=[]",
                                        "data.val.pipeline=[]",
                                        "checkpoint.every=never",
                                        "report.html=false"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
};

TEST_F(RecipeTest, ABatchThatDoesNotDivideIsSplitUnevenlyAndAveragedExactly) {
    const std::vector<std::string> options = {"batch.global=10", "batch.per_replica=1", "model.arch=tiny_cnn", "train.duration=4it",
                                              "train.eval_every=never"};
    ASSERT_EQ(run_job(1, options, "1").exit_code, 0);
    const Outcome four = run_job(4, options, "4");
    ASSERT_EQ(four.exit_code, 0) << four.output;
    EXPECT_TRUE(four.says("2 to 3 per rank")) << four.output;
    EXPECT_LT(relative_difference(tensors("4"), tensors("1")), 1e-5);
}

TEST_F(RecipeTest, WarmupRisesToTheScaledPeakAlikeOnAnyNumberOfRanks) {
    const auto options = synthetic(96, {"batch.global=16", "batch.per_replica=4", "lr.base=0.1", "lr.base_batch=8", "lr.warmup=2ep",
                                        "lr.warmup_from=base", "lr.schedule=step", "lr.at=[3ep]", "train.duration=4ep"});
    const std::vector<double> one = rates(1, options, "1");
    ASSERT_EQ(one.size(), 24U);
    EXPECT_GT(one[0], 0.1);  // the first step is the first of the rise
    EXPECT_NEAR(one[5], 0.15, 1e-12);
    EXPECT_NEAR(one[11], 0.2, 1e-12);
    EXPECT_NEAR(one[12], 0.2, 1e-12);
    for (size_t step = 1; step < 12; ++step) EXPECT_GT(one[step], one[step - 1]);
    EXPECT_NEAR(one[17], 0.2, 1e-12);
    EXPECT_NEAR(one[18], 0.02, 1e-12);
    EXPECT_EQ(rates(3, options, "3"), one);
    EXPECT_EQ(rates(4, options, "4"), one);
}

TEST_F(RecipeTest, ABatchOf8192PeaksAt3Point2) {
    const auto options = synthetic(8192, {"batch.global=8192", "batch.per_replica=512", "lr.base=0.1", "lr.base_batch=256",
                                          "lr.warmup=2it", "lr.schedule=constant", "train.duration=3it", "model.image_size=8",
                                          "model.arch=tiny_cnn", "optim.momentum=0", "train.stop_on_nan=false"});
    const std::vector<double> all = rates(2, options, "8k");
    ASSERT_EQ(all.size(), 3U);
    EXPECT_NEAR(all[2], 3.2, 1e-12);
}

TEST_F(RecipeTest, NoStartAboveThePeakAndNoJumpAfterWarmup) {
    const auto options = [](std::vector<std::string> more) {
        more.insert(more.end(), {"batch.global=16", "batch.per_replica=4", "lr.base=0.1", "lr.base_batch=16", "lr.schedule=cosine",
                                 "train.duration=4ep"});
        return synthetic(96, more);
    };
    const Outcome capped = run_job(2, options({"lr.warmup=1ep", "lr.warmup_from=0.5"}), "capped");
    ASSERT_EQ(capped.exit_code, 0) << capped.output;
    EXPECT_EQ(count(capped.output, "warmup_from"), 1) << capped.output;
    for (const auto& [step, rate] : metric("lr", "capped")) EXPECT_LE(rate, 0.1);
    for (const char* warmup : {"0ep", "0.5ep"}) {
        const std::vector<double> all = rates(1, options({fmt::format("lr.warmup={}", warmup), "lr.warmup_from=0.01"}), warmup);
        ASSERT_EQ(all.size(), 24U);
        const size_t peak = warmup == std::string("0ep") ? 0 : 2;
        EXPECT_NEAR(all[peak], 0.1, 1e-12) << warmup;
        EXPECT_LT(std::abs(all[peak + 1] - all[peak]), 0.02 * 0.1) << warmup;
        EXPECT_EQ(*std::max_element(all.begin(), all.end()), all[peak]);
    }
    const Outcome whole = run_job(2, options({"lr.warmup=4ep"}), "whole");
    EXPECT_EQ(whole.exit_code, 2) << whole.output;
    EXPECT_TRUE(whole.says("lr.warmup")) << whole.output;
}

TEST_F(RecipeTest, OneToFourRanksOnEveryTransportEndWithTheSameWeights) {
    const std::vector<std::string> options = {"model.arch=tiny_cnn", "data.train.pipeline=[center_crop: 32]", "train.duration=8it",
                                              "train.eval_every=never"};
    ASSERT_EQ(run_job(1, options, "1").exit_code, 0);
    const double norm = metric("grad_norm", "1").front().second;
    EXPECT_GT(norm, 0.0);
    for (const char* transport : {"native", "gloo"}) {
        for (const int ranks : {2, 3, 4}) {
            std::vector<std::string> all = options;
            all.push_back(fmt::format("comm.backend={}", transport));
            const std::string name = fmt::format("{}{}", transport, ranks);
            const Outcome outcome = run_job(ranks, all, name);
            ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
            EXPECT_LT(relative_difference(tensors(name), tensors("1")), 1e-5) << name;  // only the order of sums differs
            EXPECT_NEAR(metric("grad_norm", name).front().second, norm, 1e-5 * norm) << name;
        }
    }
}

TEST_F(RecipeTest, DecayTouchesConvolutionAndFullyConnectedWeightsOnlyUnlessAskedForAll) {
    ASSERT_EQ(run_job(1, {"train.duration=3it"}, "start").exit_code, 0);
    const fs::path file = newest_checkpoint(run_dir("start")) / "model.safetensors";
    const Tensors before = read_tensors(file);
    const auto step = [&](const std::string& name, std::vector<std::string> more) {
        more.insert(more.end(),
                    {"model.weights=" + file.string(), "lr.base=0.1", "lr.scaling=none", "lr.warmup=0it", "lr.schedule=constant",
                     "optim.momentum=0", "optim.nesterov=false", "train.duration=1it", "train.eval_every=never"});
        const Outcome outcome = run_job(2, more, name);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return tensors(name);
    };
    const Tensors without = step("without", {"optim.weight_decay=0"});
    const Tensors with = step("with", {"optim.weight_decay=0.1"});
    const Tensors on_all = step("all", {"optim.weight_decay=0.1", "optim.decay_bn=true", "optim.decay_bias=true"});
    for (const auto& [name, values] : before) {
        const bool decays = name == "fc.weight" || name.starts_with("conv");
        const bool statistic = name.find("running_") != std::string::npos;
        for (size_t index = 0; index < values.size(); ++index) {
            const double expected = -0.01 * values[index];
            const double tolerance = 1e-6 + 1e-5 * std::abs(double{values[index]});  // one rounding of the weight
            const double difference = double{with.at(name)[index]} - double{without.at(name)[index]};
            const double difference_on_all = double{on_all.at(name)[index]} - double{without.at(name)[index]};
            ASSERT_NEAR(difference, decays ? expected : 0.0, decays ? tolerance : 0.0) << name;
            ASSERT_NEAR(difference_on_all, statistic ? 0.0 : expected, tolerance) << name;
        }
    }
}

class WeightsTest : public RecipeTest {
protected:
    // Changes the file's tensors and starts a run from the result.
    Outcome start_from(const std::string& name, const std::function<void(std::vector<NamedTensor>&)>& change,
                       const std::vector<std::string>& more = {}) {
        if (!fs::exists(run_dir("start"))) {
            EXPECT_EQ(run_job(1, {"train.duration=3it"}, "start").exit_code, 0);
        }
        const auto file = SafetensorsFile::open(newest_checkpoint(run_dir("start")) / "model.safetensors");
        std::vector<NamedTensor> changed = file->tensors();
        change(changed);
        const fs::path place = folder_ / (name + ".safetensors");
        write_safetensors(place, changed, {});
        std::vector<std::string> options = {"model.weights=" + place.string(), "train.duration=3it"};
        options.insert(options.end(), more.begin(), more.end());
        return run_job(2, options, name);
    }
};

TEST_F(WeightsTest, WhatDoesNotFitIsListedAndNothingIsLoadedUnlessAsked) {
    struct Case {
        std::string name;
        std::function<void(std::vector<NamedTensor>&)> change;
        std::string listed;
    };
    const std::vector<std::byte> zeros(4096);
    const std::vector<Case> cases{
        {"prefixed",
         [](auto& tensors) {
             for (NamedTensor& tensor : tensors) tensor.name = "module." + tensor.name;
         },
         "module."},
        {"missing", [](auto& tensors) { std::erase_if(tensors, [](const auto& each) { return each.name == "fc.bias"; }); },
         "fc.bias"},
        {"extra",
         [&](auto& tensors) {
             tensors.push_back({"stranger", DataType::f32, {4}, std::span(zeros).first(16)});
         },
         "stranger"},
        {"misshapen",
         [&](auto& tensors) {
             for (NamedTensor& tensor : tensors) {
                 if (tensor.name == "fc.bias") tensor = {"fc.bias", DataType::f32, {7}, std::span(zeros).first(28)};
             }
         },
         "fc.bias"},
        {"mistyped",
         [&](auto& tensors) {
             for (NamedTensor& tensor : tensors) {
                 if (tensor.name == "fc.bias") tensor = {"fc.bias", DataType::i32, {3}, std::span(zeros).first(12)};
             }
         },
         "fc.bias"}};
    for (const Case& item : cases) {
        SCOPED_TRACE(item.name);
        const Outcome refused = start_from(item.name, item.change);
        EXPECT_EQ(refused.exit_code, 3) << refused.output;
        EXPECT_TRUE(refused.says(item.listed) && refused.says(item.name + ".safetensors")) << refused.output;
        EXPECT_FALSE(refused.says("step 1/") || refused.says("[rank 1] error")) << refused.output;
        const Outcome partial = start_from(item.name + "_partial", item.change, {"model.partial_weights=true"});
        EXPECT_EQ(partial.exit_code, 0) << partial.output;
        EXPECT_TRUE(partial.says(item.listed)) << partial.output;
    }
}

}  // namespace
}  // namespace lockstep::test
