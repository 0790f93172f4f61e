// The fault kit on a job of seconds: each fault gives the verdict that docs/faults.md promises, and a wrong one is told.
#include <csignal>
#include <fstream>

#include <gmock/gmock.h>

#include "core/files.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

class ChaosTest : public JobTest {
protected:
    std::vector<std::string> command(const std::string& plan) const {
        return {lockstep_program(), "chaos", plan, "--out", (folder_ / "chaos").string(), "--", "train", tiny_config()};
    }
    Outcome chaos(const std::string& plan, double limit_s) const { return run(command(plan), limit_s, test_environment()); }
    std::string plan(const std::string& text) const {
        const std::string path = (folder_ / "plan.yaml").string();
        std::ofstream(path) << text;
        return path;
    }
};

TEST_F(ChaosTest, EveryFaultGivesItsVerdict) {
    const Outcome outcome = chaos("all", 240.0);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(count(outcome.output, "as expected") + count(outcome.output, "skipped: "), 13) << outcome.output;
    EXPECT_GE(count(outcome.output, "as expected"), 10) << outcome.output;
    for (const char* line : {"skipped: network", "skipped: file systems"}) {
        if (outcome.says(line)) printf("%s\n", outcome.output.c_str());
    }
}

TEST_F(ChaosTest, AVerdictThatIsNotTheExpectedOneIsTold) {
    const Outcome outcome = chaos(plan("ranks: 2\n"
                                       "faults:\n"
                                       "  - {fault: kill, name: first, expect: {exit: 7, says: [never said], within: 0.001s}}\n"
                                       "  - {fault: terminate, rank: 0}\n"),
                                  60.0);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
    EXPECT_THAT(outcome.output, ::testing::ContainsRegex("first .*NOT AS EXPECTED: exit code 140, expected 7; it did not say "
                                                         "\"never said\"; ended after [0-9.]+ s, expected within"));
    EXPECT_THAT(outcome.output, ::testing::ContainsRegex("terminate +0 +138 +138 .*as expected"));
    EXPECT_TRUE(fs::exists(folder_ / "chaos/first/output.log"));
}

TEST_F(ChaosTest, AJobDoesNotOutliveWhoMakesItsFaults) {
    Program program(command(plan("ranks: 2\nfaults: [{fault: kill, at_step: 1000000}]\n")), test_environment());
    std::vector<pid_t> ranks;
    const auto rank_count = [&] {
        const std::vector<pid_t> launchers = children_of(program.pid());
        if (!launchers.empty()) ranks = children_of(launchers.front());
        return ranks.size();
    };
    ASSERT_TRUE(eventually(20.0, [&] { return rank_count() == 2; })) << program.output_so_far();
    program.signal(SIGKILL);
    program.wait(5.0);
    for (const pid_t pid : ranks) EXPECT_TRUE(eventually(15.0, [&] { return !process_exists(pid); }));
}

TEST_F(ChaosTest, APlanThatIsNoneIsRefusedWithItsPlace) {
    const std::vector<std::pair<std::string, std::string>> wrong = {
        {"faults: [{fault: kil}]", "allowed: kill, stop"},        {"faults: [{fault: kill, rank: 3}]", "0 to 2"},
        {"faults: [{fault: kill, at: 3}]", "unknown key \"at\""}, {"faults: []", "a list of faults"},
        {"faults: [{fault: kill}, {fault: kill}]", "two faults"}, {"faults: [{fault: kill, expect: {within: 3}}]", "such as 2s"}};
    for (const auto& [text, piece] : wrong) {
        const Outcome outcome = chaos(plan(text), 10.0);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        EXPECT_TRUE(outcome.says(piece) && outcome.says("plan.yaml")) << outcome.output;
    }
}

}  // namespace
}  // namespace lockstep::test
