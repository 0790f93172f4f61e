// Whole runs through the launcher: what they leave, that numbers do not depend on the number of ranks, logs, evaluation.
#include <fstream>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/files.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

TEST_F(JobTest, ARunLeavesReportMetricsEventsAndCheckpoint) {
    const Outcome outcome = run_job(2);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const fs::path dir = run_dir();
    for (const char* name : {"report.html", "report.json", "trace.json", "metrics.jsonl", "config.yaml"}) {
        EXPECT_TRUE(fs::exists(dir / name)) << name;
    }
    EXPECT_FALSE(newest_checkpoint(dir).empty());
    bool has_events = false;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
        has_events |= entry.path().filename().string().starts_with("events.out.tfevents");
    }
    EXPECT_TRUE(has_events);
    EXPECT_FALSE(metric("train.loss").empty());
    EXPECT_EQ(metric("val.top1").size(), 4U);
    EXPECT_FALSE(metric("images_per_s").empty());
}

TEST_F(JobTest, AReportThatCannotBeWrittenIsShownAllTheSame) {
    ASSERT_EQ(run_job(1, {"train.duration=3it"}).exit_code, 0);
    fs::remove(run_dir() + "/report.json");
    fs::create_directories(run_dir() + "/report.json/taken");  // what keeps root from writing too
    const auto report = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {lockstep_program(), "report", run_dir()});
        return run(words, 20.0);
    };
    const Outcome refused = report({});
    EXPECT_EQ(refused.exit_code, 4) << refused.output;
    EXPECT_TRUE(refused.says("Lockstep report: tiny")) << refused.output;
    EXPECT_NE(refused.last_line().find("cannot write " + run_dir() + "/report.json"), std::string::npos) << refused.output;
    EXPECT_NE(refused.last_line().find("--out FOLDER"), std::string::npos) << refused.output;
    const std::string out = run_dir("elsewhere/report");
    const Outcome written = report({"--out", out});
    EXPECT_EQ(written.exit_code, 0) << written.output;
    EXPECT_TRUE(written.says("written to " + out + ": report.html, report.json, trace.json")) << written.output;
    for (const char* name : {"report.html", "report.json", "trace.json"}) EXPECT_TRUE(fs::exists(fs::path(out) / name)) << name;
}

TEST_F(JobTest, ATrainingWhoseReaderLeavesGoesOnToItsEnd) {
    const std::string train = lockstep_program() + " train " + tiny_config() + " train.duration=1ep run.dir=" + run_dir();
    const Outcome outcome =
        run({"sh", "-c", "(" + train + " 2>&1; echo $? > " + run_dir("code") + ") | head -n 1"}, 60.0, test_environment());
    EXPECT_TRUE(eventually(10.0, [&] { return fs::exists(run_dir("code")) && read_file(run_dir("code")) == "0\n"; }));
    EXPECT_FALSE(newest_checkpoint(run_dir()).empty()) << outcome.output;
}

TEST_F(JobTest, RepeatedRunsAreBitIdentical) {
    ASSERT_EQ(run_job(2, {}, "first").exit_code, 0);
    ASSERT_EQ(run_job(2, {}, "second").exit_code, 0);
    ASSERT_FALSE(weights("first").empty());
    EXPECT_EQ(weights("first"), weights("second"));
}

TEST_F(JobTest, AugmentationDependsOnSeed) {
    ASSERT_EQ(run_job(1, {"train.duration=3it"}, "first").exit_code, 0);
    ASSERT_EQ(run_job(1, {"train.duration=3it", "run.seed=8"}, "second").exit_code, 0);
    EXPECT_NE(weights("first"), weights("second"));
}

TEST_F(JobTest, EvaluationIsTheSameOnAnyNumberOfRanks) {
    ASSERT_EQ(run_job(2).exit_code, 0);
    nlohmann::json first;
    for (const int ranks : {1, 2, 3, 4}) {
        const Outcome outcome =
            run({lockstep_program(), "run", "--nproc-per-node", std::to_string(ranks), "--", "eval", run_dir(), "--json"}, 60.0,
                test_environment());
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        const size_t begin = outcome.output.find("{\"");
        ASSERT_NE(begin, std::string::npos) << outcome.output;
        const auto result = nlohmann::json::parse(outcome.output.substr(begin, outcome.output.find('}', begin) - begin + 1));
        EXPECT_EQ(result.at("val.count").get<int64_t>(), 21);
        EXPECT_EQ(result.at("val.top5").get<double>(), 1.0);  // three classes: all of them are among the first five
        if (ranks == 1) first = result;
        EXPECT_EQ(result.at("val.top1"), first.at("val.top1"));
        EXPECT_NEAR(result.at("val.loss").get<double>(), first.at("val.loss").get<double>(), 1e-6);
    }
    EXPECT_EQ(metric("val.top1").back().second, first.at("val.top1").get<double>());
}

TEST_F(JobTest, OutputIsWholeLinesWithoutTerminalCodes) {
    const Outcome outcome = run_job(4, {"train.duration=2ep"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(outcome.output.find('\r'), std::string::npos);
    EXPECT_EQ(outcome.output.find('\x1b'), std::string::npos);
    EXPECT_EQ(outcome.output.back(), '\n');
}

TEST_F(JobTest, TheReportsPartsAddUpAndOverlapHidesASlowLink) {
    // A network whose backward takes long enough to hide something, and a transfer slowed on purpose.
    const std::vector<std::string> slow = {"model.arch=resnet20",         "batch.per_replica=12",   "train.duration=12it",
                                           "train.eval_every=never",      "checkpoint.every=never", "comm.bucket=128KiB",
                                           "comm.test_delay_per_kib=20us"};
    std::vector<std::string> without = slow;
    without.push_back("comm.overlap=false");
    ASSERT_EQ(run_job(2, slow, "with").exit_code, 0);
    ASSERT_EQ(run_job(2, without, "without").exit_code, 0);
    const auto with_overlap = nlohmann::json::parse(read_file(run_dir("with") + "/report.json"));
    const auto no_overlap = nlohmann::json::parse(read_file(run_dir("without") + "/report.json"));
    for (const auto& report : {with_overlap, no_overlap}) {
        ASSERT_EQ(report.at("budget").at("ranks").size(), 2U);
        for (const auto& rank : report.at("budget").at("ranks")) {
            double sum_ms = 0.0;
            for (const auto& [part, value] : rank.items()) {
                if (part != "rank" && part != "step_ms") sum_ms += value.get<double>();
            }
            EXPECT_NEAR(sum_ms, rank.at("step_ms").get<double>(), 0.02 * rank.at("step_ms").get<double>());
        }
    }
    EXPECT_GT(with_overlap.at("headline").at("overlap_share").get<double>(), 0.0);
    // From the medians of each bucket: means over a dozen steps would measure whatever else the machine does.
    const auto exposed_ms = [](const nlohmann::json& report) {
        double sum_ms = 0.0;
        for (const auto& bucket : report.at("buckets")) {
            sum_ms += bucket.at("transfer_ms").template get<double>() * (1.0 - bucket.at("hidden_share").template get<double>());
        }
        return sum_ms;
    };
    EXPECT_LT(exposed_ms(with_overlap), exposed_ms(no_overlap));
}

}  // namespace
}  // namespace lockstep::test
