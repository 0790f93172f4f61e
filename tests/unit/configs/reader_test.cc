#include "configs/schema.h"
#include "core/files.h"
#include "core/nearest.h"
#include "tests/unit/configs/config_fixture.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(ConfigTest, AnOmittedKeyHasTheDefaultOfTheStruct) {
    const Experiment experiment = read(kMinimal).experiment;
    EXPECT_EQ(experiment.lr.base, Experiment().lr.base);
    EXPECT_EQ(experiment.comm.timeout_ms, 10'000);
}

TEST_F(ConfigTest, OverridesWinAndCarryUnitsAndLists) {
    const Experiment experiment =
        read(kMinimal + "lr: {base: 0.1}\n", {"lr.base=0.2", "lr.at=[30ep,60ep]", "comm.bucket=64KiB", "comm.timeout=3s",
                                              "data.val.path=/x/{000..127}.tar", "train.eval_every=never"})
            .experiment;
    EXPECT_EQ(experiment.lr.base, 0.2);
    EXPECT_EQ(experiment.lr.at.size(), 2U);
    EXPECT_EQ(experiment.comm.bucket_bytes, 64 << 10);
    EXPECT_EQ(experiment.comm.timeout_ms, 3000);
    EXPECT_EQ(experiment.data.val.path, "/x/{000..127}.tar");
    EXPECT_FALSE(experiment.train.eval_every);
}

TEST_F(ConfigTest, OverridesGiveTheSameErrorsWithTheCommandLineAsPlace) {
    EXPECT_THAT(error_of(kMinimal, {"lr.bsae=0.2"}), AllOf(HasSubstr("command line: lr.bsae"), HasSubstr("lr.base")));
    EXPECT_THAT(error_of(kMinimal, {"momentum=0.2"}), HasSubstr("optim.momentum"));
    EXPECT_THAT(error_of(kMinimal, {"lr.base=much"}), HasSubstr("command line: lr.base: found \"much\"; allowed: number"));
    EXPECT_THAT(error_of(kMinimal, {"lr.base"}), HasSubstr("allowed: key=value"));
    EXPECT_THAT(error_of(kMinimal, {"lr.at=[30ep"}), HasSubstr("command line"));
    EXPECT_THAT(error_of(kMinimal, {"lr=0.1"}), HasSubstr("a block of keys"));
}

TEST_F(ConfigTest, IncludesAreLaidUnderTheFile) {
    write("one.yaml", "lr: {base: 0.1, base_batch: 128}\n");
    write("two.yaml", "lr: {base: 0.2}\n");
    const ReadResult result = read("include: [one.yaml, two.yaml]\n" + kMinimal + "lr: {warmup: 1ep}\n");
    EXPECT_EQ(result.experiment.lr.base, 0.2);
    EXPECT_EQ(result.experiment.lr.base_batch, 128);
    EXPECT_THAT(result.origins.at("lr.base").text(), HasSubstr("two.yaml:1:6"));
}

TEST_F(ConfigTest, IncludesInACircleOrMissingAreErrors) {
    write("one.yaml", "include: [config.yaml]\n");
    EXPECT_THAT(error_of("include: [one.yaml]\n"), HasSubstr("includes itself"));
    EXPECT_THAT(error_of("include: [none.yaml]\n"), AllOf(HasSubstr("config.yaml:1:11"), HasSubstr("none.yaml")));
}

TEST_F(ConfigTest, VariablesAreExpanded) {
    environment_["ROOT"] = "/data";
    const Experiment experiment =
        read("run: {name: a, dir: \"${env:RUNS:-runs}/${run.name}\"}\ndata: {train: {path: \"${env:ROOT}/$$x\"}}\n", {"run.name=b"})
            .experiment;
    EXPECT_EQ(experiment.run.dir, "runs/b");
    EXPECT_EQ(experiment.data.train.path, "/data/$x");
}

TEST_F(ConfigTest, UnknownVariablesAndCirclesAreErrors) {
    EXPECT_THAT(error_of(kMinimal + "run: {dir: \"${env:NOWHERE}\"}\n"), HasSubstr("NOWHERE is not set"));
    EXPECT_THAT(error_of(kMinimal + "run: {dir: \"${run.nam}\"}\n"), HasSubstr("no such key"));
    EXPECT_THAT(error_of(kMinimal + "run: {name: \"${run.dir}\", dir: \"${run.name}\"}\n"), HasSubstr("refers to itself"));
    EXPECT_THAT(error_of(kMinimal + "run: {dir: \"${run.name\"}\n"), HasSubstr("without `}`"));
}

TEST_F(ConfigTest, TheResolvedFileReadsBackTheSame) {
    const ReadResult first =
        read(kMinimal + "run: {name: \"a: b # c $${x}\"}\nmodel: {image_size: 32}\n",
             {"data.train.pipeline=[{random_crop: {size: 32, pad: 4}}, {hflip: 0.25}]", "lr.warmup_from=0.01", "checkpoint.best="});
    const ReadResult second = read_file(write("resolved.yaml", first.experiment.resolved_yaml));
    EXPECT_EQ(first.experiment.run.name, "a: b # c ${x}");
    EXPECT_EQ(second.experiment.resolved_yaml, first.experiment.resolved_yaml);
    EXPECT_EQ(second.experiment.hash, first.experiment.hash);
    EXPECT_EQ(second.experiment.data.train.pipeline.at(1).probability, 0.25);
    EXPECT_EQ(second.origins.size(), schema().size()) << "every key stands in the resolved file";
}

TEST_F(ConfigTest, TheHashChangesWithEveryKeyButTheRunFolder) {
    const std::string hash = read(kMinimal).experiment.hash;
    EXPECT_EQ(read(kMinimal, {"run.dir=elsewhere"}).experiment.hash, hash);
    EXPECT_NE(read(kMinimal, {"run.seed=8"}).experiment.hash, hash);
}

TEST_F(ConfigTest, OriginsAreShown) {
    const ReadResult result = read(kMinimal, {"lr.base=0.2"});
    const std::string text = shown_text(result.experiment, result.origins, {.defaults = false, .comments = true});
    EXPECT_THAT(text, AllOf(HasSubstr("base: 0.2  # command line"), HasSubstr("path: somewhere  # "), Not(HasSubstr("seed"))));
}

TEST_F(ConfigTest, KeysThatHoldAnchorsAreDropped) {
    EXPECT_EQ(read("x-lr: &lr {base: 0.3}\nlr: {<<: *lr, warmup: 1ep}\n" + kMinimal).experiment.lr.base, 0.3);
}

TEST_F(ConfigTest, APipelineIsReadInItsThreeForms) {
    const auto pipeline = read(kMinimal, {"data.train.pipeline=[{resize: 256}, {random_resized_crop: {size: 224}}, hflip]"})
                              .experiment.data.train.pipeline;
    ASSERT_EQ(pipeline.size(), 3U);
    EXPECT_EQ(pipeline[0].size, std::vector<int64_t>{256});
    EXPECT_EQ(pipeline[1].scale, (std::vector<double>{0.08, 1.0}));
    EXPECT_EQ(pipeline[2].probability, 0.5);
    EXPECT_THAT(error_of(kMinimal, {"data.train.pipeline=[hflp]"}), HasSubstr("did you mean hflip?"));
    EXPECT_THAT(error_of(kMinimal, {"data.train.pipeline=[center_crop]"}), HasSubstr("needs a size"));
    EXPECT_THAT(error_of(kMinimal, {"data.train.pipeline=[{hflip: 2}]"}), HasSubstr("0 to 1"));
    EXPECT_THAT(error_of(kMinimal, {"data.train.pipeline=[{resize: 100}]"}), HasSubstr("model.image_size is 224"));
    EXPECT_THAT(error_of(kMinimal, {"data.train.pipeline=[{random_crop: {size: 8, padding: 4}}]"}),
                HasSubstr("unknown key \"padding\""));
}

TEST_F(ConfigTest, AMissingFileIsAConfigurationError) {
    EXPECT_THAT(error_of_file("/nonexistent/c.yaml"), HasSubstr("/nonexistent/c.yaml"));
}

TEST(Nearest, TwoEditsAHyphenOrASharedWord) {
    EXPECT_EQ(nearest_name("wieght_decay", {"momentum", "weight_decay"}), "weight_decay");
    EXPECT_EQ(nearest_name("warmup-from", {"warmup", "warmup_from"}), "warmup_from");
    EXPECT_EQ(nearest_name("zzz", {"momentum"}), "");
    const std::vector<std::string> models = {"alexnet", "vgg_a", "vgg16", "resnet50"};
    for (const char* far : {"nope", "lenet", "vgg_19x", "vit_b", "x", ""}) EXPECT_EQ(nearest_name(far, models), "") << far;
    EXPECT_EQ(nearest_name("vgg_b", models), "vgg_a");
    EXPECT_EQ(nearest_name("renset50", models), "resnet50");
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
    EXPECT_TRUE(share_a_word("weight-decay", "decay_rate"));
    EXPECT_FALSE(share_a_word("lr", "lr_x"));
}

}  // namespace
}  // namespace lockstep
