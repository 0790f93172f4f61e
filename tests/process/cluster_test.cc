// Jobs of several launchers on this machine, with what befalls clusters: kills, launchers that go and come, strangers, a cut link.
// The scripts are those of docs/acceptance.md, with smaller numbers.
#include <gmock/gmock.h>

#include "tests/process/job.h"

namespace lockstep::test {
namespace {

using ::testing::HasSubstr;

class ClusterTest : public JobTest {
protected:
    Outcome script(const std::string& name, std::vector<std::string> arguments, double limit_s) const {
        arguments.insert(arguments.begin(), std::string(LOCKSTEP_SOURCE) + "/scripts/acceptance/" + name);
        arguments.insert(arguments.end(), {"--folder", run_dir("cluster")});
        Program::Environment environment = test_environment();
        environment.emplace_back("LOCKSTEP_PROGRAM", lockstep_program());
        return run(arguments, limit_s, environment);
    }
};

TEST_F(ClusterTest, AJobThatIsKilledAgainAndAgainFinishesWithTheWeightsOfAnUnbrokenOne) {
    const Outcome outcome = script("kills", {"6", "--seed", "3"}, 280.0);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("6 kills"));
}

TEST_F(ClusterTest, AJobThatLosesALauncherAndGainsTwoKeepsItsBatchAndRates) {
    const Outcome outcome = script("shrink_and_grow", {"--steps", "6000"}, 200.0);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("[2, 1, 3] ranks in turn"));
}

TEST_F(ClusterTest, StrangersAtTheStoreHarmNobody) {
    const Outcome outcome = script("strangers", {"--seconds", "1"}, 200.0);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

}  // namespace
}  // namespace lockstep::test
