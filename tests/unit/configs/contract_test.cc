#include "tests/unit/configs/config_fixture.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(ConfigTest, DataPathIsNeededUnlessSynthetic) {
    EXPECT_THAT(error_of("batch: {global: 32}\n"), HasSubstr("data.train.path"));
    EXPECT_NO_THROW(read("data: {train: {source: synthetic}}\n"));
}

TEST_F(ConfigTest, AStartOfWarmupAboveThePeakIsWarnedOfOnce) {
    const std::string text =
        kMinimal + "batch: {global: 8, per_replica: 8}\nlr: {base: 0.1, base_batch: 256, warmup: 1ep, warmup_from: 0.05}\n";
    EXPECT_THAT(read(text).experiment.warnings, ElementsAre(HasSubstr("lr.warmup_from: 0.05 is above the peak 0.003125")));
}

TEST_F(ConfigTest, WarmupInOtherUnitsIsCheckedOnceTheStepsAreKnown) {
    const Experiment experiment = read(kMinimal + "lr: {warmup: 12it}\ntrain: {duration: 2ep}\n").experiment;
    EXPECT_NO_THROW(check_schedule(experiment, 7));
    EXPECT_THROW(check_schedule(experiment, 6), ConfigError);
}

// Sums that are rounded on their way depend on where the ranks are.
TEST_F(ConfigTest, AnyWorldRefusesAWireThatRounds) {
    const std::string text =
        kMinimal + "batch: {global: 64, per_replica: 32}\ntrain: {threads: 1}\nrun: {reproducible: any_world}\n";
    for (const std::string wire : {"bf16", "fp16"}) {
        EXPECT_THAT(error_of(text, {"comm.wire=" + wire}),
                    testing::AllOf(HasSubstr("run.reproducible"), HasSubstr("comm.wire " + wire), HasSubstr("set comm.wire=fp32")));
        EXPECT_NO_THROW(read(text, {"comm.wire=" + wire, "run.reproducible=same_world"})) << wire;
    }
    EXPECT_NO_THROW(read(text, {"comm.wire=fp32"}));
}

TEST_F(ConfigTest, AnyWorldRefusesArithmeticThatTheClockChooses) {
    const std::string text =
        kMinimal + "batch: {global: 64, per_replica: 32}\ntrain: {threads: 1}\nrun: {reproducible: any_world}\n";
    EXPECT_THAT(error_of(text, {"compute.autotune=measure"}),
                testing::AllOf(HasSubstr("run.reproducible"), HasSubstr("set compute.autotune=heuristic")));
    EXPECT_NO_THROW(read(text, {"compute.autotune=off"}));
    EXPECT_NO_THROW(read(kMinimal, {"compute.autotune=measure"}));
}

TEST_F(ConfigTest, DurationsCountSteps) {
    EXPECT_EQ((Duration{Duration::Unit::epochs, 0.5}.steps(6)), 3);
    EXPECT_EQ((Duration{Duration::Unit::epochs, 2}.steps(6)), 12);
    EXPECT_EQ((Duration{Duration::Unit::iterations, 100}.steps(6)), 100);
}

TEST_F(ConfigTest, DropsMustRiseAndBeUsed) {
    EXPECT_THAT(error_of(kMinimal + "lr: {at: [60ep, 30ep]}\n"), HasSubstr("found 30ep after 60ep"));
    EXPECT_THAT(error_of(kMinimal + "lr: {at: []}\n"), HasSubstr("lr.schedule step needs times"));
    EXPECT_THAT(read(kMinimal + "lr: {at: [30ep], schedule: cosine}\n").experiment.warnings,
                ElementsAre(HasSubstr("not used by lr.schedule cosine")));
    EXPECT_THAT(read(kMinimal + "lr: {at: [30ep]}\n").experiment.warnings, IsEmpty());
}

TEST_F(ConfigTest, ThePipelinesLastSizeMustBeTheModels) {
    EXPECT_THAT(
        error_of(kMinimal + "model: {image_size: 32}\n", {"data.train.pipeline=[{random_crop: {size: 28, pad: 4}}, hflip]"}),
        HasSubstr("command line: data.train.pipeline: random_crop gives images of 28x28, but model.image_size is 32"));
}

TEST_F(ConfigTest, TheFolderHasANameAndImagesAreGreyOrColoured) {
    EXPECT_THAT(error_of(kMinimal, {"run.dir="}), HasSubstr("run.dir: found nothing"));
    EXPECT_THAT(error_of(kMinimal, {"data.train.source=synthetic_jpeg", "model.num_classes=5"}),
                HasSubstr("model.num_classes: found 5, but synthetic_jpeg draws ten classes"));
    EXPECT_THAT(error_of(kMinimal + "model: {channels: 2}\n"), HasSubstr("found 2; allowed: 3, or 1 for grey"));
}

TEST_F(ConfigTest, ASharedOutUpdateNeedsMemoryOfTheNode) {
    EXPECT_NO_THROW(read(kMinimal + "optim: {sharded: node}\n"));
    EXPECT_NO_THROW(read(kMinimal + "optim: {sharded: node}\ncomm: {backend: native}\n"));
    for (const char* backend : {"tcp", "mpi", "gloo"}) {
        EXPECT_THAT(error_of(kMinimal + "optim: {sharded: node}\n", {std::string("comm.backend=") + backend}),
                    testing::AllOf(HasSubstr("optim.sharded"), HasSubstr(backend), HasSubstr("comm.backend=native")));
    }
    EXPECT_THAT(error_of(kMinimal + "optim: {sharded: node}\ncomm: {shared_memory: false}\n"), HasSubstr("optim.sharded"));
    EXPECT_THAT(error_of(kMinimal + "optim: {sharded: all}\n"), HasSubstr("off, node"));
}

TEST_F(ConfigTest, OneWorkerPerRankIsTheLeast) {
    const Experiment experiment = read(kMinimal + "batch: {global: 64, per_replica: 32}\n").experiment;
    EXPECT_NO_THROW(check_world(experiment, 1));
    EXPECT_NO_THROW(check_world(experiment, 2));
    EXPECT_THROW(check_world(experiment, 3), ConfigError);
}

}  // namespace
}  // namespace lockstep
