#include "trainer/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(Agreement, EqualFactsAgree) {
    const std::vector<AgreementFact> facts{{"the program", "1"}, {"the configuration", "a: 1\nb: 2\n"}};
    EXPECT_EQ(find_disagreement({facts, facts, facts}), "");
    EXPECT_EQ(find_disagreement({facts}), "");
}

TEST(Agreement, ShowsTheFirstDifferenceBothValuesAndTheRanks) {
    const std::vector<AgreementFact> facts{{"the program", "1"}, {"the configuration", "model:\n  num_classes: 10\nb: 2\n"}};
    const std::vector<AgreementFact> others{{"the program", "1"}, {"the configuration", "model:\n  num_classes: 12\nb: 3\n"}};
    const std::string difference = find_disagreement({facts, others, facts, others});
    EXPECT_THAT(difference, HasSubstr("the configuration"));
    EXPECT_THAT(difference, HasSubstr("rank 0 has \"num_classes: 10\", rank 1 has \"num_classes: 12\""));
    EXPECT_THAT(difference, HasSubstr("differ from rank 0: 1, 3"));
}

TEST(Agreement, ShowsALineThatOneRankLacks) {
    EXPECT_THAT(find_disagreement({{{"the configuration", "a: 1\nb: 2"}}, {{"the configuration", "a: 1"}}}), HasSubstr("\"b: 2\""));
}

TEST(Agreement, TheProgramKnowsItself) {
    EXPECT_THAT(program_fingerprint(), HasSubstr(program_version()));
    EXPECT_EQ(program_fingerprint(), program_fingerprint());
}

}  // namespace
}  // namespace lockstep
