// Another number of ranks between two starts of one run: what becomes of batch, rate and samples.
#include <filesystem>

#include "core/files.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

// 101 pictures, 24 a step: five steps an epoch, four epochs. A checkpoint after each step.
class ElasticTest : public JobTest {
protected:
    static std::vector<std::string> settings(const std::string& policy, const std::string& from = "auto") {
        return {"elastic.batch=" + policy, "run.resume=" + from,   "run.audit=true",
                "lr.warmup=1ep",           "checkpoint.every=1it", "checkpoint.keep_last=100",
                "train.eval_every=2ep",    "report.html=false",    "report.tensorboard=false"};
    }
    Outcome train(int ranks, const std::string& policy, const std::string& from = "auto") const {
        return run_job(ranks, settings(policy, from));
    }
    std::string checkpoint(int64_t step) const {
        const std::string number = std::to_string(step);
        return run_dir() + "/checkpoints/step-" + std::string(9 - number.size(), '0') + number;
    }
    Outcome audit() const { return run({lockstep_program(), "data", "audit", run_dir()}, 30.0, test_environment()); }
    // As last recorded.
    double rate_of(int64_t step) const {
        double rate = -1.0;
        for (const auto& [logged, value] : metric("lr")) {
            if (logged == step) rate = value;
        }
        return rate;
    }
};

TEST_F(ElasticTest, KeptOnThreeRanksBatchRateAndSamplesStay) {
    ASSERT_EQ(train(2, "keep").exit_code, 0);
    const auto rates = metric("lr");
    const Outcome outcome = train(3, "keep", checkpoint(7));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(outcome.says("world 2 -> 3: global batch 24 kept: same samples, same rate")) << outcome.output;
    for (const auto& [step, rate] : rates) EXPECT_EQ(rate_of(step), rate) << step;
    const Outcome proof = audit();
    EXPECT_EQ(proof.exit_code, 0) << proof.output;
    EXPECT_TRUE(proof.says("20 steps, 404 samples, ranks: 2 from step 0, 3 from step 7")) << proof.output;
    EXPECT_TRUE(proof.says("in each of 4 whole epochs every sample was used once")) << proof.output;
}

TEST_F(ElasticTest, ScaledToThreeRanksAndToOneBatchAndRateFollowAndEachSampleIsUsedOnceAnEpoch) {
    ASSERT_EQ(train(2, "scale").exit_code, 0);
    const double before = rate_of(10);  // of 20: at the begin of the third epoch
    const Outcome grown = train(3, "scale", checkpoint(7));
    EXPECT_EQ(grown.exit_code, 0) << grown.output;
    EXPECT_TRUE(grown.says("world 2 -> 3: global batch 24 -> 36, rate x1.5; the first step has 24 images")) << grown.output;
    EXPECT_TRUE(std::filesystem::exists(checkpoint(15))) << "7 steps of 24, 2 to the end of that epoch, then 3 in each of two";
    EXPECT_DOUBLE_EQ(rate_of(9), 1.5 * before) << "at the begin of the third epoch";
    Outcome proof = audit();
    EXPECT_EQ(proof.exit_code, 0) << proof.output;
    EXPECT_TRUE(proof.says("15 steps, 404 samples, ranks: 2 from step 0, 3 from step 7")) << proof.output;
    EXPECT_TRUE(proof.says("in each of 4 whole epochs every sample was used once")) << proof.output;

    const Outcome shrunk = train(1, "scale", checkpoint(11));
    EXPECT_EQ(shrunk.exit_code, 0) << shrunk.output;
    EXPECT_TRUE(shrunk.says("world 3 -> 1: global batch 36 -> 12, rate x0.3333")) << shrunk.output;
    proof = audit();
    EXPECT_EQ(proof.exit_code, 0) << proof.output;
    EXPECT_TRUE(proof.says("404 samples, ranks: 2 from step 0, 3 from step 7, 1 from step 11")) << proof.output;
    EXPECT_TRUE(proof.says("in each of 4 whole epochs every sample was used once")) << proof.output;
}

TEST_F(ElasticTest, WhatCannotBeScaledExactlyIsRefusedBeforeTheFirstStep) {
    Outcome outcome = run_job(2, {"elastic.batch=scale"});  // the warmup of tiny.yaml is two steps
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_TRUE(outcome.says("lr.warmup: found 2it; allowed with elastic.batch scale: epochs")) << outcome.output;
    ASSERT_EQ(run_job(2, {"elastic.batch=scale", "lr.warmup=0ep", "batch.global=20", "train.duration=1ep"}).exit_code, 0);
    outcome = run_job(3, {"elastic.batch=scale", "lr.warmup=0ep", "batch.global=20", "train.duration=1ep"});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_TRUE(outcome.says("start 2 or 4 ranks, or set elastic.batch=keep")) << outcome.output;
}

}  // namespace
}  // namespace lockstep::test
