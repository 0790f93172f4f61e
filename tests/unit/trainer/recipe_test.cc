// From an experiment to the options of the parts, and to what a run that goes on must agree with: every setting arrives.
#include "trainer/recipe.h"

#include <unistd.h>

#include <functional>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/files.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Change = std::function<void(Experiment&)>;

std::vector<std::string> keys_that_differ(const Change& change, int64_t classes = 10) {
    Experiment other;
    change(other);
    const ResultKeys before = result_keys(Experiment{}, 10), after = result_keys(other, classes);
    std::vector<std::string> different;
    for (size_t place = 0; place < before.size(); ++place) {
        EXPECT_EQ(before[place].first, after[place].first);
        if (before[place].second != after[place].second) different.push_back(before[place].first);
    }
    return different;
}

TEST(ResultKeys, EverySettingThatDecidesResultsIsOneAndTellsItsChange) {
    const std::vector<std::pair<std::string, Change>> changes{
        {"run.seed", [](Experiment& e) { e.run.seed = 1; }},
        {"model.arch", [](Experiment& e) { e.model.arch = "resnet18"; }},
        {"model.variant", [](Experiment& e) { e.model.variant = "v1"; }},
        {"model.image_size", [](Experiment& e) { e.model.image_size = 192; }},
        {"model.channels", [](Experiment& e) { e.model.channels = 1; }},
        {"model.dropout", [](Experiment& e) { e.model.dropout = 0.1; }},
        {"model.zero_init_last_bn", [](Experiment& e) { e.model.zero_init_last_bn = false; }},
        {"train.precision", [](Experiment& e) { e.train.precision = "bf16"; }},
        {"comm.wire", [](Experiment& e) { e.comm.wire = "bf16"; }},
        {"data.train.pipeline", [](Experiment& e) { e.data.train.pipeline.push_back({.name = "horizontal_flip"}); }},
        {"data.train.raw_colour", [](Experiment& e) { e.data.train.raw_colour = "rgb"; }},
        {"data.mean", [](Experiment& e) { e.data.mean[2] = 0.5; }},
        {"data.stddev", [](Experiment& e) { e.data.stddev[0] = 0.5; }},
        {"data.decode", [](Experiment& e) { e.data.decode = "fast"; }},
        {"data.apply_exif_orientation", [](Experiment& e) { e.data.apply_exif_orientation = true; }},
        {"data.mixup", [](Experiment& e) { e.data.mixup = 0.2; }},
        {"data.cutmix", [](Experiment& e) { e.data.cutmix = 1.0; }},
        {"data.shuffle", [](Experiment& e) { e.data.shuffle = false; }},
        {"data.remainder", [](Experiment& e) { e.data.remainder = "drop"; }},
        {"batch.global", [](Experiment& e) { e.batch.global = 512; }},
        {"batch.per_replica", [](Experiment& e) { e.batch.per_replica = 16; }},
        {"optim.name", [](Experiment& e) { e.optim.name = "other"; }},
        {"optim.momentum", [](Experiment& e) { e.optim.momentum = 0.8; }},
        {"optim.nesterov", [](Experiment& e) { e.optim.nesterov = false; }},
        {"optim.folded_momentum", [](Experiment& e) { e.optim.folded_momentum = true; }},
        {"optim.weight_decay", [](Experiment& e) { e.optim.weight_decay = 2e-4; }},
        {"optim.decay_bn", [](Experiment& e) { e.optim.decay_bn = true; }},
        {"optim.decay_bias", [](Experiment& e) { e.optim.decay_bias = true; }},
        {"lr.base", [](Experiment& e) { e.lr.base = 0.2; }},
        {"lr.base_batch", [](Experiment& e) { e.lr.base_batch = 128; }},
        {"lr.scaling", [](Experiment& e) { e.lr.scaling = "sqrt"; }},
        {"lr.warmup", [](Experiment& e) { e.lr.warmup.amount = 5.0; }},
        {"lr.warmup_from", [](Experiment& e) { e.lr.warmup_from = 0.01; }},
        {"lr.schedule", [](Experiment& e) { e.lr.schedule = "cosine"; }},
        {"lr.at", [](Experiment& e) { e.lr.at[1].unit = Duration::Unit::iterations; }},
        {"lr.factor", [](Experiment& e) { e.lr.factor = 0.2; }},
        {"lr.power", [](Experiment& e) { e.lr.power = 1.0; }},
        {"lr.final_rate", [](Experiment& e) { e.lr.final_rate = 1e-4; }},
        {"loss.label_smoothing", [](Experiment& e) { e.loss.label_smoothing = 0.1; }},
        {"batchnorm.keep", [](Experiment& e) { e.batchnorm.keep = 0.99; }},
        {"batchnorm.epsilon", [](Experiment& e) { e.batchnorm.epsilon = 1e-3; }}};
    std::set<std::string> told{"model.num_classes"};
    EXPECT_THAT(keys_that_differ([](Experiment&) {}, 11), ElementsAre("model.num_classes"));
    for (const auto& [key, change] : changes) {
        EXPECT_THAT(keys_that_differ(change), ElementsAre(key));
        told.insert(key);
    }
    for (const auto& [key, value] : result_keys(Experiment{}, 10)) EXPECT_TRUE(told.contains(key)) << key << " has no case here";
}

TEST(ResultKeys, EveryPartOfATransformIsInTheKeyOfThePipeline) {
    const std::vector<std::function<void(TransformConfig&)>> changes{[](TransformConfig& step) { step.name = "b"; },
                                                                     [](TransformConfig& step) { step.size = {8}; },
                                                                     [](TransformConfig& step) { step.pad = 1; },
                                                                     [](TransformConfig& step) {
                                                                         step.scale = {0.1, 1.0};
                                                                     },
                                                                     [](TransformConfig& step) {
                                                                         step.ratio = {0.1, 1.0};
                                                                     },
                                                                     [](TransformConfig& step) { step.probability = 0.1; },
                                                                     [](TransformConfig& step) { step.numbers["hue"] = 0.1; },
                                                                     [](TransformConfig& step) { step.words["filter"] = "area"; }};
    std::set<std::string> texts;
    const auto text_of = [](const TransformConfig& step) {
        Experiment experiment;
        experiment.data.train.pipeline = {step};
        for (const auto& [key, value] : result_keys(experiment, 10)) {
            if (key == "data.train.pipeline") return value;
        }
        return std::string();
    };
    texts.insert(text_of({.name = "a"}));
    for (const auto& change : changes) {
        TransformConfig step{.name = "a"};
        change(step);
        texts.insert(text_of(step));
    }
    EXPECT_EQ(texts.size(), changes.size() + 1);
}

TEST(ResultKeys, WhatChangesNoResultIsNone) {
    for (const Change& change :
         std::vector<Change>{[](Experiment& e) { e.run.dir = "elsewhere"; }, [](Experiment& e) { e.data.workers = 7; },
                             [](Experiment& e) { e.data.decode = "full"; }, [](Experiment& e) { e.train.threads = 3; },
                             [](Experiment& e) { e.train.duration.amount = 1.0; }, [](Experiment& e) { e.train.log_every = 1; },
                             [](Experiment& e) { e.comm.bucket_bytes = 1; }, [](Experiment& e) { e.checkpoint.keep_last = 9; },
                             [](Experiment& e) { e.data.train.path = "moved"; }}) {
        EXPECT_THAT(keys_that_differ(change), IsEmpty());
    }
}

TEST(ResultKeys, OfAMeanFileTheContentCounts) {
    const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("mean-{}", getpid());
    make_directories(folder);
    const auto mean_key = [&](const std::string& name, const std::string& content) {
        write_file_atomically(folder / name, content);
        Experiment experiment;
        experiment.data.mean_file = (folder / name).string();
        for (const auto& [key, value] : result_keys(experiment, 10)) {
            if (key == "data.mean") return value;
        }
        return std::string();
    };
    EXPECT_EQ(mean_key("a", "mean"), mean_key("b", "mean"));
    EXPECT_NE(mean_key("a", "mean"), mean_key("a", "nean"));
    fs::remove_all(folder);
}

TEST(Recipe, EveryOptionOfTheOptimizerArrives) {
    Experiment experiment;
    experiment.optim = {.momentum = 0.8, .nesterov = false, .folded_momentum = true, .weight_decay = 0.003};
    for (const bool decay_bn : {false, true}) {
        experiment.optim.decay_bn = decay_bn;
        experiment.optim.decay_bias = !decay_bn;
        const SgdOptions options = sgd_options(experiment);
        EXPECT_EQ(options.momentum, 0.8);
        EXPECT_FALSE(options.nesterov);
        EXPECT_TRUE(options.folded);
        EXPECT_EQ(options.weight_decay, 0.003);
        EXPECT_EQ(options.decay_batch_norm, decay_bn);
        EXPECT_EQ(options.decay_bias, !decay_bn);
    }
    EXPECT_TRUE(sgd_options(Experiment{}).nesterov);
    EXPECT_FALSE(sgd_options(Experiment{}).folded);
}

TEST(Recipe, DurationsOfTheRateBecomeSteps) {
    Experiment experiment;
    experiment.batch.global = 512;
    experiment.lr = {.base = 0.2, .base_batch = 64, .warmup = {Duration::Unit::epochs, 2.5}, .warmup_from = 0.01, .factor = 0.3};
    experiment.lr.at = {{Duration::Unit::epochs, 30.0}, {Duration::Unit::iterations, 444.0}};
    const LearningRateOptions options = learning_rate_options(experiment, 10, 900);
    EXPECT_EQ(options.warmup_steps, 25);
    EXPECT_THAT(options.step_at, ElementsAre(300, 444));
    EXPECT_EQ(options.batch_global, 512);
    EXPECT_EQ(options.base_batch, 64);
    EXPECT_EQ(options.base, 0.2);
    EXPECT_EQ(options.warmup_from, 0.01);
    EXPECT_EQ(options.factor, 0.3);
    EXPECT_EQ(options.total_steps, 900);
    using Shape = LearningRateOptions::Shape;
    for (const auto& [name, shape] :
         {std::pair("constant", Shape::constant), std::pair("step", Shape::step), std::pair("multistep", Shape::step),
          std::pair("cosine", Shape::cosine), std::pair("polynomial", Shape::polynomial)}) {
        experiment.lr.schedule = name;
        EXPECT_EQ(learning_rate_options(experiment, 10, 900).shape, shape) << name;
    }
    using Scaling = LearningRateOptions::Scaling;
    for (const auto& [name, scaling] :
         {std::pair("none", Scaling::none), std::pair("sqrt", Scaling::sqrt), std::pair("linear", Scaling::linear)}) {
        experiment.lr.scaling = name;
        EXPECT_EQ(learning_rate_options(experiment, 10, 900).scaling, scaling) << name;
    }
}

TEST(Recipe, EveryOptionOfTheNetworkArrives) {
    Experiment experiment;
    experiment.model = {.arch = "resnet18", .variant = "v1", .image_size = 192, .channels = 1, .zero_init_last_bn = false};
    experiment.model.dropout = 0.25;
    experiment.loss.label_smoothing = 0.125;
    const ModelOptions options = model_options(experiment, 7);
    EXPECT_EQ(options.arch, "resnet18");
    EXPECT_EQ(options.variant, "v1");
    EXPECT_EQ(options.num_classes, 7);
    EXPECT_EQ(options.image_size, 192);
    EXPECT_EQ(options.channels, 1);
    EXPECT_FALSE(options.zero_init_last_bn);
    EXPECT_EQ(options.dropout, 0.25F);
    EXPECT_EQ(options.label_smoothing, 0.125F);
    EXPECT_FALSE(options.bn_keep) << "the network's own";
    EXPECT_FALSE(options.bn_epsilon);
    experiment.batchnorm = {.keep = 0.5, .epsilon = 0.25};
    EXPECT_EQ(model_options(experiment, 7).bn_keep, 0.5F);
    EXPECT_EQ(model_options(experiment, 7).bn_epsilon, 0.25F);
}

TEST(Recipe, TrainingIsMixedAndShuffledAndValidationIsNot) {
    Experiment experiment;
    experiment.data.mixup = 0.2;
    experiment.data.cutmix = 0.7;
    experiment.data.workers = 3;
    experiment.data.timeout_ms = 1234;
    const LoaderOptions training = training_loader_options(experiment, 3);
    EXPECT_EQ(training.mix.mixup, 0.2);
    EXPECT_EQ(training.mix.cutmix, 0.7);
    EXPECT_EQ(training.timeout_ms, 1234);
    EXPECT_EQ(training.slot_capacity, 32);
    EXPECT_EQ(training.max_worker_threads, 3) << "as asked for";
    EXPECT_FALSE(loader_options(experiment, {}, 3).mix.on());
    experiment.data.workers = 0;
    EXPECT_EQ(training_loader_options(experiment, 3).max_worker_threads, 6);
    EXPECT_TRUE(sampler_options(experiment, 100).shuffle);
    EXPECT_TRUE(sampler_options(experiment, 100).keep_remainder);
    EXPECT_FALSE(sampler_options(experiment, 100).fixed_places);
    experiment.data.shuffle = false;
    experiment.data.remainder = "drop";
    experiment.run.reproducible = "any_world";
    const SamplerOptions sampler = sampler_options(experiment, 100);
    EXPECT_FALSE(sampler.shuffle);
    EXPECT_FALSE(sampler.keep_remainder);
    EXPECT_TRUE(sampler.fixed_places);
    EXPECT_EQ(sampler.seed, experiment.run.seed);
    EXPECT_EQ(sampler.sample_count, 100);
}

TEST(Recipe, EachPartOfTheDataHasItsOwnOptions) {
    Experiment experiment;
    experiment.data.train = {.source = "lmdb", .path = "t", .first_label = 1, .raw_colour = "rgb"};
    experiment.data.val = {.source = "flat", .path = "v", .labels = "l", .cifar100_labels = "coarse"};
    const SourceOptions train = training_source_options(experiment);
    EXPECT_TRUE(train.train);
    EXPECT_EQ(train.kind, "lmdb");
    EXPECT_EQ(train.path, "t");
    EXPECT_EQ(train.first_label, 1);
    EXPECT_EQ(train.raw_colour, "rgb");
    EXPECT_FALSE(train.coarse_labels);
    EXPECT_THAT(train.class_names, IsEmpty());
    const SourceOptions val = validation_source_options(experiment, {"cat", "dog"}, 2);
    EXPECT_FALSE(val.train);
    EXPECT_EQ(val.kind, "flat");
    EXPECT_EQ(val.path, "v");
    EXPECT_EQ(val.labels_path, "l");
    EXPECT_EQ(val.first_label, 0);
    EXPECT_TRUE(val.coarse_labels);
    EXPECT_THAT(val.class_names, ElementsAre("cat", "dog"));
    EXPECT_EQ(val.num_classes, 2);
}

}  // namespace
}  // namespace lockstep
