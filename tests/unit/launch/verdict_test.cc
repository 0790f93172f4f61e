#include "launch/verdict.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

RankEnd exited(int rank, int code, int64_t at) {
    return {.rank = rank, .host = "h", .pid = 100 + rank, .exit_code = code, .ended_ns = at};
}
RankEnd killed(int rank, int signal, int64_t at) {
    return {.rank = rank, .host = "h", .pid = 100 + rank, .signal = signal, .ended_ns = at};
}
RankEnd stopped(int rank, int signal, int64_t at) {
    RankEnd end = killed(rank, signal, at);
    end.stopped_by_agent = true;
    return end;
}

TEST(Verdict, TheFirstFailureByTimeIsTheRoot) {
    const Verdict verdict = judge({exited(0, 3, 20), exited(1, 7, 10), stopped(2, SIGTERM, 30)}, 0);
    EXPECT_EQ(verdict.first_failed, 1);
    EXPECT_EQ(verdict.exit_code, 7);
}

TEST(Verdict, PeersThatFollowAreNotTheRootEvenWhenTheyEndFirst) {
    EXPECT_EQ(judge({exited(0, 140, 10), exited(1, 3, 20)}, 0).exit_code, 3);
    const Verdict verdict = judge({exited(0, 140, 10), killed(1, SIGKILL, 20)}, 0);
    EXPECT_EQ(verdict.first_failed, 1);
    EXPECT_EQ(verdict.exit_code, 140);
    EXPECT_EQ(judge({exited(0, 140, 20), exited(1, 140, 10)}, 0).first_failed, 1);
}

TEST(Verdict, RequestsHaveTheirCodes) {
    EXPECT_EQ(judge({exited(0, 0, 1), exited(1, 0, 2)}, 0).exit_code, 0);
    EXPECT_EQ(judge({stopped(0, SIGINT, 1), stopped(1, SIGINT, 2)}, SIGINT).exit_code, 130);
    EXPECT_EQ(judge({stopped(0, SIGTERM, 1)}, SIGTERM).exit_code, 143);
    EXPECT_EQ(judge({exited(0, 138, 1), exited(1, 138, 2)}, SIGTERM).exit_code, 138);
    EXPECT_EQ(judge({exited(0, 138, 1), exited(1, 138, 2)}, 0).exit_code, 138);
    EXPECT_EQ(judge({exited(0, 138, 1), stopped(1, SIGKILL, 2)}, SIGTERM).exit_code, 143);
}

TEST(Verdict, TheClosingLinesEndWithTheRootsOwnWords) {
    std::vector<RankEnd> ends{exited(0, 140, 20), killed(1, SIGSEGV, 10)};
    ends[1].core_dumped = true;
    ends[1].last_lines = {"about to fail"};
    const auto lines = closing_lines(ends, judge(ends, 0));
    EXPECT_THAT(lines[1], HasSubstr("exit code 140 (peer lost)"));
    EXPECT_THAT(lines[2], AllOf(HasSubstr("101"), HasSubstr("SIGSEGV (core dumped)"), HasSubstr("<- first")));
    EXPECT_THAT(lines[3], AllOf(HasSubstr("rank 1 failed first"), HasSubstr("its last lines:")));
    EXPECT_EQ(lines.back(), "[1]: about to fail");
    ends[1].last_lines.clear();
    EXPECT_THAT(closing_lines(ends, judge(ends, 0)).back(), HasSubstr("it wrote nothing"));
}

TEST(Verdict, TheErrorFileOfTheRootIsShownUnlessItsOutputSaysTheSame) {
    std::vector<RankEnd> ends{exited(0, 1, 10), exited(1, 140, 20)};
    ends[0].error = "ValueError: 3\nsecond line";
    ends[1].error = "a peer is gone";
    EXPECT_THAT(closing_lines(ends, judge(ends, 0)), testing::Contains("its error file: ValueError: 3"));
    EXPECT_EQ(closing_lines(ends, judge(ends, 0)).back(), "  second line");
    ends[0].last_lines = {"error: ValueError: 3", "bye"};
    EXPECT_THAT(closing_lines(ends, judge(ends, 0)), testing::Not(testing::Contains(HasSubstr("error file"))));
    EXPECT_EQ(closing_lines(ends, judge(ends, 0)).back(), "[0]: bye");
}

}  // namespace
}  // namespace lockstep
