#include "report/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "report/gate.h"
#include "report/recorder.h"
#include "report/svg.h"
#include "tests/support/synthetic_run.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using lockstep::testing_support::make_synthetic_run;
using lockstep::testing_support::SyntheticRun;
using lockstep::testing_support::write_synthetic_run;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMs = 1'000'000;

class OutputsTest : public ::testing::Test {
protected:
    void SetUp() override {
        run_dir_ = fs::path(::testing::TempDir()) / ("outputs_" + std::to_string(getpid()));
        fs::remove_all(run_dir_);
    }
    void TearDown() override { fs::remove_all(run_dir_); }

    std::string report_on(const SyntheticRun& plan) {
        write_synthetic_run(plan, run_dir_);
        return write_report({.run_dir = run_dir_});
    }
    std::string file(const char* name) const { return read_file(run_dir_ / name); }
    Json json(const char* name) const { return Json::parse(file(name)); }

    fs::path run_dir_;
};

// Every tag is closed in order (our pages close all of them, "<meta …/>" too) and no bare < or & stands in text.
std::string fault_in_markup(const std::string& page) {
    std::vector<std::string> open;
    size_t at = page.find("<html");
    while (at < page.size()) {
        const size_t tag = page.find('<', at);
        const std::string text = page.substr(at, tag == std::string::npos ? std::string::npos : tag - at);
        for (size_t mark = text.find('&'); mark != std::string::npos; mark = text.find('&', mark + 1)) {
            const size_t end = text.find(';', mark);
            if (end == std::string::npos || end - mark > 6) return "bare & in: " + text.substr(mark, 20);
        }
        if (tag == std::string::npos) break;
        const size_t end = page.find('>', tag);
        if (end == std::string::npos) return "unclosed tag at the end";
        const std::string inside = page.substr(tag + 1, end - tag - 1);
        if (inside.find('<') != std::string::npos) return "bare < before: " + inside.substr(0, 40);
        const std::string name = inside.substr(0, inside.find_first_of(" /\n", 1));
        if (inside[0] == '/') {
            if (open.empty() || open.back() != inside.substr(1)) return "closes " + inside;
            open.pop_back();
        } else if (inside.back() != '/') {
            open.push_back(name);
        }
        at = end + 1;
    }
    return open.empty() ? "" : "never closed: " + open.back();
}

TEST_F(OutputsTest, PageIsOneWellFormedFileWithoutNetwork) {
    report_on({.step_count = 200});
    const std::string page = file("report.html");
    EXPECT_EQ(fault_in_markup(page), "");
    for (const char* absent : {"http:", "https:", "\"nan", " nan", ">nan", ",nan", "inf,", "-nan", "<link", "@import", "url("}) {
        EXPECT_EQ(page.find(absent), std::string::npos) << absent;
    }
    EXPECT_NE(page.find("Timeline of step"), std::string::npos);
}

TEST_F(OutputsTest, MarkupCheckItselfFindsFaults) {
    EXPECT_NE(fault_in_markup("<html><p></html>"), "");
    EXPECT_NE(fault_in_markup("<html>a & b</html>"), "");
    EXPECT_NE(fault_in_markup("<html><p>"), "");
    EXPECT_EQ(fault_in_markup("<html><p class=\"x\">a &amp; b<br/></p></html>"), "");
}

TEST_F(OutputsTest, ForeignTextsAreEscaped) {
    RunRecords run = make_synthetic_run({});
    for (RankRecords& rank : run.ranks) {
        rank.facts.name = "<script>alert('x')</script> & \"more\"";
        rank.facts.host = "<b>";
        rank.facts.buckets[0].layers = "a<b>&c";
        rank.facts.extra = {{"<i>", "]]>"}};
    }
    const std::string page = html_report(analyze(run, 3), timeline_of(run, 7, 7), {});
    EXPECT_EQ(fault_in_markup(page), "");
    EXPECT_EQ(page.find("<script>alert"), std::string::npos);
    EXPECT_NE(page.find("&lt;script&gt;alert"), std::string::npos);
}

TEST_F(OutputsTest, ManyRanksAndStepsStayBelowOneMegabyte) {
    SyntheticRun plan{.rank_count = 256, .step_count = 60};
    plan.transfer_ns.assign(48, 100'000);
    plan.extra_forward_ns = [](int rank, int64_t step) { return (rank * 7919 + step * 104729) % 3000 * 1000; };
    RunRecords run = make_synthetic_run(plan);
    RunAnalysis analysis = analyze(run, 3);
    for (int64_t step = 60; step < 20'000; ++step) analysis.curve.push_back({step, 33.0 + static_cast<double>(step % 17)});
    std::vector<MetricsLine> metrics;
    for (int64_t step = 0; step < 20'000; ++step)
        metrics.push_back({step, static_cast<double>(step) / 100, {{"train.loss", 1.0}, {"lr", 0.1}}});
    const std::string page = html_report(analysis, timeline_of(run, 30, 30), metrics);
    EXPECT_LT(page.size(), 1'000'000U);
    EXPECT_EQ(fault_in_markup(page), "");
}

TEST_F(OutputsTest, ShortRunsSayNotApplicableEverywhere) {
    const std::string summary = report_on({.step_count = 2});
    EXPECT_THAT(summary, HasSubstr("n/a"));
    EXPECT_THAT(summary, HasSubstr("Too short to tell"));
    EXPECT_TRUE(json("report.json")["headline"]["images_per_s"].is_null());
    EXPECT_EQ(fault_in_markup(file("report.html")), "");
}

// The keys are an interface: a change here needs a new schema_version.
void collect_keys(const Json& json, const std::string& prefix, std::set<std::string>& keys) {
    if (json.is_array() && !json.empty()) collect_keys(json[0], prefix + "[]", keys);
    if (!json.is_object()) return;
    for (const auto& [key, value] : json.items()) {
        keys.insert(prefix + "." + key);
        collect_keys(value, prefix + "." + key, keys);
    }
}

TEST_F(OutputsTest, JsonKeysAreStable) {
    report_on({.step_count = 100});
    const Json report = json("report.json");
    EXPECT_EQ(report["schema"], "lockstep.report");
    EXPECT_EQ(report["schema_version"], 1);
    std::set<std::string> keys;
    for (const char* part : {"window", "headline", "budget", "sync_model", "buckets", "ranks", "losses", "pauses"}) {
        ASSERT_TRUE(report.contains(part)) << part;
        collect_keys(report[part], part, keys);
    }
    const std::set<std::string> golden = {"budget.mean",
                                          "budget.mean.arrival_wait_ms",
                                          "budget.mean.backward_ms",
                                          "budget.mean.data_wait_ms",
                                          "budget.mean.exposed_transfer_ms",
                                          "budget.mean.forward_ms",
                                          "budget.mean.optimizer_ms",
                                          "budget.mean.other_ms",
                                          "budget.mean.step_ms",
                                          "budget.ranks",
                                          "budget.ranks[].arrival_wait_ms",
                                          "budget.ranks[].backward_ms",
                                          "budget.ranks[].data_wait_ms",
                                          "budget.ranks[].exposed_transfer_ms",
                                          "budget.ranks[].forward_ms",
                                          "budget.ranks[].optimizer_ms",
                                          "budget.ranks[].other_ms",
                                          "budget.ranks[].rank",
                                          "budget.ranks[].step_ms",
                                          "budget.sd_over_ranks",
                                          "budget.sd_over_ranks.arrival_wait_ms",
                                          "budget.sd_over_ranks.backward_ms",
                                          "budget.sd_over_ranks.data_wait_ms",
                                          "budget.sd_over_ranks.exposed_transfer_ms",
                                          "budget.sd_over_ranks.forward_ms",
                                          "budget.sd_over_ranks.optimizer_ms",
                                          "budget.sd_over_ranks.other_ms",
                                          "buckets[].algbw_gb_per_s",
                                          "buckets[].arrived_ms",
                                          "buckets[].bucket",
                                          "buckets[].busbw_gb_per_s",
                                          "buckets[].bytes",
                                          "buckets[].end_ms",
                                          "buckets[].hidden_share",
                                          "buckets[].layers",
                                          "buckets[].ready_ms",
                                          "buckets[].start_ms",
                                          "buckets[].transfer_ms",
                                          "buckets[].wait_ms",
                                          "headline.arrival_wait_share",
                                          "headline.exposed_transfer_share",
                                          "headline.images_per_s",
                                          "headline.images_per_s_per_rank",
                                          "headline.overlap_share",
                                          "headline.sentence",
                                          "headline.step_p50_ms",
                                          "headline.step_p95_ms",
                                          "headline.step_p99_ms",
                                          "headline.sync_efficiency",
                                          "headline.sync_efficiency_formula",
                                          "losses[].ceiling_gain_percent",
                                          "losses[].loss_ms",
                                          "losses[].part",
                                          "losses[].text",
                                          "pauses[].count",
                                          "pauses[].kind",
                                          "pauses[].total_s",
                                          "ranks[].cause",
                                          "ranks[].host",
                                          "ranks[].images",
                                          "ranks[].images_per_s",
                                          "ranks[].last_share",
                                          "ranks[].mean_lateness_ms",
                                          "ranks[].rank",
                                          "ranks[].step_ms",
                                          "ranks[].step_ms.p50",
                                          "ranks[].step_ms.p95",
                                          "ranks[].step_ms.p99",
                                          "ranks[].steps",
                                          "sync_model.backward_ms",
                                          "sync_model.bandwidth_gb_per_s",
                                          "sync_model.bandwidth_source",
                                          "sync_model.efficiency",
                                          "sync_model.formula",
                                          "sync_model.forward_ms",
                                          "sync_model.gradient_bytes",
                                          "window.clock_error_ms",
                                          "window.first_step",
                                          "window.last_step",
                                          "window.missing_ranks",
                                          "window.ranks_present",
                                          "window.skipped_steps",
                                          "window.steady_steps",
                                          "window.steps",
                                          "window.warnings"};
    EXPECT_EQ(keys, golden);
}

TEST_F(OutputsTest, MissingRanksAreNamed) {
    write_synthetic_run({.rank_count = 3}, run_dir_);
    fs::remove(run_dir_ / "records" / "rank1.bin");
    const std::string summary = write_report({.run_dir = run_dir_});
    EXPECT_THAT(summary, HasSubstr("MISSING records of rank 1"));
    EXPECT_EQ(json("report.json")["window"]["missing_ranks"], Json({1}));
    EXPECT_NE(file("report.html").find("No records of rank 1"), std::string::npos);
}

TEST_F(OutputsTest, AKilledRunStillReports) {
    write_synthetic_run({.step_count = 300}, run_dir_);
    const fs::path path = run_dir_ / "records" / "rank1.bin";
    fs::resize_file(path, fs::file_size(path) - 100);  // torn in its last block
    const std::string summary = write_report({.run_dir = run_dir_});
    EXPECT_THAT(summary, HasSubstr("rank1.bin: damaged or cut at byte"));
    EXPECT_EQ(json("report.json")["window"]["last_step"], 199);  // whole blocks of 100
}

TEST_F(OutputsTest, TraceHoldsTheLastStepsOfAllRanksOnNamedTracks) {
    report_on({.rank_count = 3, .step_count = 120});
    const Json trace = json("trace.json");
    std::set<int> ranks;
    std::set<std::string> steps, names;
    for (const Json& event : trace["traceEvents"]) {
        ranks.insert(event["pid"].get<int>());
        const std::string name = event["name"];
        if (event["ph"] == "M") names.insert(event["args"].value("name", ""));
        if (event["ph"] != "X") continue;
        EXPECT_GE(event["ts"].get<double>(), 0.0);
        EXPECT_GT(event["dur"].get<double>(), 0.0);
        if (name.rfind("step ", 0) == 0) steps.insert(name);
    }
    EXPECT_EQ(ranks, (std::set<int>{0, 1, 2}));
    EXPECT_EQ(steps.size(), 20U);
    EXPECT_TRUE(steps.contains("step 119"));
    for (const char* name : {"rank 0 (node0)", "compute", "communication", "data"}) EXPECT_TRUE(names.contains(name)) << name;
}

TEST_F(OutputsTest, SummaryIsOneScreenOfPlainText) {
    SyntheticRun plan{.rank_count = 12, .step_count = 100};
    plan.transfer_ns.assign(30, 500'000);
    plan.extra_data_wait_ns = [](int rank, int64_t) { return rank == 7 ? 9 * kMs : 0; };
    const std::string summary = report_on(plan);
    EXPECT_LE(std::count(summary.begin(), summary.end(), '\n'), 40);
    EXPECT_THAT(summary, Not(HasSubstr("\x1b")));
    EXPECT_THAT(summary, Not(HasSubstr("\r")));
    EXPECT_THAT(summary, HasSubstr("straggler: rank 7"));
}

TEST_F(OutputsTest, SameRunGivesTheSameBytes) {
    report_on({.step_count = 60});
    const std::string page = file("report.html"), trace = file("trace.json"), numbers = file("report.json");
    write_report({.run_dir = run_dir_});
    EXPECT_EQ(file("report.html"), page);
    EXPECT_EQ(file("trace.json"), trace);
    EXPECT_EQ(file("report.json"), numbers);
}

TEST_F(OutputsTest, GateClosesOnTheConditionAndOnNotApplicable) {
    const std::string known = json_report(analyze(make_synthetic_run({}), 3));
    EXPECT_FALSE(closed_gate(known, "sync_efficiency<0.9"));
    EXPECT_THAT(*closed_gate(known, "sync_efficiency < 0.99"), HasSubstr("sync_efficiency is 0.969"));
    EXPECT_TRUE(closed_gate(known, "step_p50_ms>=33"));
    EXPECT_TRUE(closed_gate(json_report(analyze(make_synthetic_run({.step_count = 1}), 3)), "sync_efficiency<0.9"));
    for (const char* wrong : {"", "sync_efficiency", "nonsense<1", "sentence<1", "sync_efficiency<0.9.9", "sync_efficiency=1"}) {
        EXPECT_THROW(closed_gate(known, wrong), ConfigError) << wrong;
    }
}

TEST(Ticks, AreRoundAndInside) {
    EXPECT_EQ(nice_ticks({0.0, 1.0}, 5), (std::vector<double>{0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0}));
    EXPECT_LE(nice_ticks({-3.0, 1e9}, 8).size(), 17U);
    EXPECT_EQ(nice_ticks({2.0, 2.0}, 5).size(), 1U);
}

}  // namespace
}  // namespace lockstep
