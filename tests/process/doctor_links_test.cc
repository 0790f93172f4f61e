// `lockstep doctor cluster` over links that have something: nodes that are network namespaces of this machine.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "tests/process/job.h"

namespace lockstep::test {
namespace {

class DoctorLinksTest : public JobTest {
protected:
    void SetUp() override {
        JobTest::SetUp();
        const Outcome trial = lab(2, 0, "true");
        if (trial.exit_code == 4) GTEST_SKIP() << "network namespaces or TUN devices are not permitted here: " << trial.last_line();
    }

    // A line of shell on each of the nodes, which finds its number in RANK.
    static Outcome lab(int nodes, double delay_ms, const std::string& line) {
        return run({LOCKSTEP_SOURCE "/scripts/netlab", "--nodes", std::to_string(nodes), "--delay-ms", fmt::format("{}", delay_ms),
                    "--", "/bin/bash", "-c", line},
                   60.0,
                   {{"LOCKSTEP_TEST_CASES", sample_file("")},
                    {"LOCKSTEP_NETLAB_PROGRAM", (fs::path(lockstep_program()).parent_path() / "lockstep_netlab").string()}});
    }
    static std::string doctor(const std::string& words = "") { return "exec " + lockstep_program() + " doctor cluster " + words; }
};

TEST_F(DoctorLinksTest, ALongLinkIsMeasuredAndIsNoProblem) {
    const Outcome outcome = lab(2, 20, doctor("--json"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output.substr(outcome.output.find('{')));
    EXPECT_TRUE(json.at("findings").empty()) << outcome.output;
    ASSERT_EQ(json.at("links").size(), 2U) << outcome.output;
    for (const auto& link : json.at("links")) {
        EXPECT_GE(link.at("round_trip_ms").get<double>(), 40.0) << "20 ms each way\n" << outcome.output;
        EXPECT_LT(std::abs(link.at("clock_offset_ms").get<double>()), 200.0) << "one machine has one clock\n" << outcome.output;
    }
}

// What node 1 sends to node 2 is thrown away, so it says so itself, and what node 2 sends is never answered.
TEST_F(DoctorLinksTest, APairThatIsCutIsNamedFromBothSidesAndNoOther) {
    if (run({"which", "ip"}, 10.0).exit_code != 0) GTEST_SKIP() << "the program ip is not installed";
    const Outcome outcome = lab(3, 1, "if [ $RANK = 1 ]; then ip route add blackhole 10.77.0.3/32; fi; " + doctor());
    EXPECT_EQ(outcome.exit_code, 4) << outcome.output;
    EXPECT_TRUE(outcome.says("error: node 1 (lab-node1) cannot reach node 2 (lab-node2) at 10.77.0.3:")) << outcome.output;
    EXPECT_TRUE(outcome.says("error: node 2 (lab-node2) cannot reach node 1 (lab-node1) at 10.77.0.2:")) << outcome.output;
    EXPECT_TRUE(outcome.says("links: 4 of 6 reached")) << outcome.output;
    EXPECT_EQ(count(outcome.output, "cannot reach node 0"), 0) << outcome.output;
}

TEST_F(DoctorLinksTest, AnInterfaceThatLeadsNowhereIsNamedWithThePairAndOneThatIsNotThereWithTheRank) {
    const std::string config = tiny_config() + " run.dir=" + run_dir();
    Outcome outcome = lab(2, 1, doctor(config + " comm.interface=lo"));
    EXPECT_EQ(outcome.exit_code, 4) << outcome.output;
    EXPECT_TRUE(outcome.says("error: node 0 (lab-node0) cannot reach node 1 (lab-node1) at 127.0.0.1:")) << outcome.output;
    EXPECT_TRUE(outcome.says("error: node 1 (lab-node1) cannot reach node 0 (lab-node0) at 127.0.0.1:")) << outcome.output;
    EXPECT_TRUE(outcome.says("comm.interface")) << outcome.output;
    outcome = lab(2, 1, doctor(config + " comm.interface=eth17"));
    EXPECT_EQ(outcome.exit_code, 4) << outcome.output;
    for (const char* rank : {"error: rank 0 on lab-node0: ", "error: rank 1 on lab-node1: "}) {
        EXPECT_TRUE(outcome.says(rank)) << outcome.output;
    }
    EXPECT_TRUE(outcome.says("eth17")) << outcome.output;
}

}  // namespace
}  // namespace lockstep::test
