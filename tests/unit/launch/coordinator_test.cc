// The coordinator as a machine: events in, decisions out, and a clock that the test moves.
#include "launch/coordinator.h"

#include <csignal>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/clock.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = Decision::Kind;
using Event = AgentEvent::Kind;

RankEnd exited(int rank, int code) { return {.rank = rank, .host = "h", .exit_code = code, .ended_ns = rank}; }
RankEnd killed(int rank) { return {.rank = rank, .host = "h", .signal = SIGKILL, .ended_ns = rank}; }

class CoordinatorTest : public testing::Test {
protected:
    void start(CoordinatorOptions options) {
        options.run_name = "run";
        coordinator_.emplace(options, now_ns_);
    }
    void pass(double seconds) {
        now_ns_ += static_cast<int64_t>(1e9 * seconds);
        look();
    }
    void look() {
        coordinator_->look_at_the_clock(now_ns_);
        for (Decision& decision : coordinator_->take_decisions()) {
            if (decision.kind == Kind::note) {
                notes_ += decision.lines.front() + "\n";
            } else {
                decisions_.push_back(std::move(decision));
            }
        }
    }
    int64_t join(const std::string& identity, int ranks = 1, int node_rank = -1) {
        const int64_t number = next_++;
        coordinator_->hear(
            {.kind = Event::joined,
             .facts = {.identity = identity, .host = identity, .address = identity, .local_size = ranks, .node_rank = node_rank}},
            number, now_ns_);
        look();
        return number;
    }
    void tell(Event kind, int64_t agent, std::vector<RankEnd> ends = {}, int signal = 0) {
        coordinator_->hear({.kind = kind, .agent = agent, .round = round(), .signal = signal, .ends = std::move(ends)}, next_++,
                           now_ns_);
        look();
    }
    int round() const { return decisions_.empty() ? 0 : decisions_.back().round; }
    // The kinds of the decisions since the last call.
    std::vector<Kind> kinds() {
        std::vector<Kind> kinds;
        for (const Decision& decision : decisions_) kinds.push_back(decision.kind);
        if (!decisions_.empty()) last_ = decisions_.back();
        decisions_.clear();
        return kinds;
    }
    std::vector<std::string> members() const {
        std::vector<std::string> names;
        for (const RoundMember& member : last_.members) names.push_back(member.identity);
        return names;
    }

    std::optional<Coordinator> coordinator_;
    int64_t now_ns_ = 1'000'000'000;
    int64_t next_ = 0;
    std::vector<Decision> decisions_;
    Decision last_;
    std::string notes_;
};

TEST_F(CoordinatorTest, OneNodeStartsAtOnceAndEndsWithItsRanks) {
    start({});
    const int64_t agent = join("a", 2);
    EXPECT_THAT(kinds(), ElementsAre(Kind::start));
    EXPECT_EQ(last_.world_size, 2);
    decisions_.push_back(last_);  // for round()
    tell(Event::stopped, agent, {exited(0, 0), exited(1, 0)});
    EXPECT_EQ(decisions_.back().kind, Kind::finish);
    EXPECT_EQ(decisions_.back().code, 0);
}

TEST_F(CoordinatorTest, NodesStandInTheOrderTheirUsersGave) {
    start({.min_nodes = 3, .max_nodes = 3});
    join("c", 1, 2);
    join("a", 2, 0);
    EXPECT_TRUE(kinds().empty());
    join("b", 3, 1);
    EXPECT_THAT(kinds(), ElementsAre(Kind::start));
    EXPECT_THAT(members(), ElementsAre("a", "b", "c"));
    EXPECT_EQ(last_.members[2].first_rank, 5);
    EXPECT_EQ(last_.world_size, 6);
    EXPECT_EQ(last_.master_addr, "a");
}

TEST_F(CoordinatorTest, ADoubledNodeRankIsRefusedAloneAndNamesBoth) {
    start({.min_nodes = 2, .max_nodes = 2});
    join("a", 1, 0);
    const int64_t second = join("b", 1, 0);
    EXPECT_THAT(kinds(), ElementsAre(Kind::refuse));
    EXPECT_EQ(last_.agent, second);
    EXPECT_THAT(last_.lines.front(), testing::AllOf(HasSubstr("--node-rank 0"), HasSubstr("a pid"), HasSubstr("b pid")));
}

TEST_F(CoordinatorTest, WithMinAndMaxItWaitsForTheLastCallAndTooFewGiveUp) {
    start({.min_nodes = 2, .max_nodes = 3, .join_timeout_s = 100, .last_call_s = 30, .silent_after_s = 1000});
    join("a");
    pass(50);
    join("b");
    pass(29);
    EXPECT_TRUE(kinds().empty());
    pass(2);
    EXPECT_THAT(kinds(), ElementsAre(Kind::start));
    start({.min_nodes = 2, .max_nodes = 2, .join_timeout_s = 100, .silent_after_s = 1000});
    join("a");
    pass(101);
    EXPECT_THAT(kinds(), ElementsAre(Kind::finish));
    EXPECT_EQ(last_.code, 140);
    EXPECT_THAT(last_.lines.front(), HasSubstr("only 1 of 2 nodes came within 100 s (a)"));
}

TEST_F(CoordinatorTest, AFailureStopsAllAndStartsANewRoundUntilTheRestartsAreUsedUp) {
    start({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
    const int64_t a = join("a"), b = join("b");
    const std::string first_job = decisions_.back().job_id;
    for (const int attempt : {0, 1}) {
        tell(Event::failed, a, {killed(0)});
        EXPECT_EQ(decisions_.back().kind, Kind::end);
        tell(Event::stopped, a, {killed(0)});
        EXPECT_EQ(decisions_.back().kind, Kind::end) << "the other still runs";
        tell(Event::stopped, b, {exited(1, 140)});
        EXPECT_EQ(decisions_.back().kind, attempt == 0 ? Kind::start : Kind::finish);
        if (attempt > 0) continue;
        EXPECT_EQ(decisions_.back().restart_count, 1);
        EXPECT_NE(decisions_.back().job_id, first_job);
        EXPECT_THAT(notes_, HasSubstr("restart 1 of 1"));
    }
    EXPECT_EQ(decisions_.back().code, 140);
    EXPECT_THAT(decisions_.back().lines, testing::Contains(HasSubstr("rank 0 failed first")));
}

TEST_F(CoordinatorTest, ExitCodesDecideWhetherToTryAgain) {
    for (const int code : {2, 3, 5, 130}) EXPECT_FALSE(restarts_help(exited(0, code), false)) << code;
    for (const int code : {4, 7, 137, 140, 143}) EXPECT_TRUE(restarts_help(exited(0, code), true)) << code;
    EXPECT_FALSE(restarts_help(exited(0, 1), true));
    EXPECT_TRUE(restarts_help(exited(0, 1), false)) << "what a Python program ends with";
    EXPECT_TRUE(restarts_help(killed(0), true));
    start({.max_restarts = 5});
    const int64_t agent = join("a");
    tell(Event::stopped, agent, {exited(0, 3)});
    EXPECT_EQ(decisions_.back().kind, Kind::finish);
    EXPECT_EQ(decisions_.back().code, 3);
}

TEST_F(CoordinatorTest, ALostAgentOfAFixedNumberIsWaitedForAndCostsARestart) {
    for (const int restarts : {0, 1}) {
        start({.min_nodes = 2, .max_nodes = 2, .max_restarts = restarts});
        const int64_t a = join("a"), b = join("b");
        tell(Event::gone, b);
        EXPECT_EQ(decisions_.back().kind, Kind::end);
        tell(Event::stopped, a, {exited(0, 140)});
        if (restarts == 0) {
            EXPECT_EQ(decisions_.back().kind, Kind::finish);
            EXPECT_EQ(decisions_.back().code, 140);
            continue;
        }
        EXPECT_EQ(decisions_.back().kind, Kind::end);
        join("b again");
        EXPECT_EQ(decisions_.back().kind, Kind::start);
        EXPECT_EQ(decisions_.back().restart_count, 1);
    }
    EXPECT_THAT(notes_, HasSubstr("the agent on b (pid 0, 1 rank) is lost"));
}

TEST_F(CoordinatorTest, WithMinAndMaxALossShrinksAndANewAgentGrowsTheJobForFree) {
    start({.min_nodes = 1, .max_nodes = 3, .last_call_s = 0});
    const int64_t a = join("a");
    EXPECT_THAT(kinds(), ElementsAre(Kind::start));
    const int64_t b = join("b");
    EXPECT_TRUE(kinds().empty()) << "others may be coming";
    pass(1.1);
    EXPECT_THAT(kinds(), ElementsAre(Kind::pause));
    decisions_.push_back(last_);
    tell(Event::stopped, a, {exited(0, 138)});
    EXPECT_EQ(kinds().back(), Kind::start);
    EXPECT_THAT(members(), ElementsAre("a", "b"));
    EXPECT_EQ(last_.restart_count, 0);
    decisions_.push_back(last_);
    tell(Event::failed, a, {exited(0, 140)});  // its peer has died with its agent, of which nobody knows yet
    tell(Event::gone, b);
    tell(Event::stopped, a, {exited(0, 140)});
    EXPECT_EQ(kinds().back(), Kind::start);
    EXPECT_THAT(members(), ElementsAre("a"));
    EXPECT_EQ(last_.restart_count, 0);
}

TEST_F(CoordinatorTest, AJobThatEndsWhileItIsPausedHasEnded) {
    start({.min_nodes = 1, .max_nodes = 2, .last_call_s = 0});
    const int64_t a = join("a");
    join("b");
    pass(1.1);
    EXPECT_EQ(decisions_.back().kind, Kind::pause);
    tell(Event::stopped, a, {exited(0, 0)});
    EXPECT_EQ(decisions_.back().kind, Kind::finish);
    EXPECT_EQ(decisions_.back().code, 0);
}

TEST_F(CoordinatorTest, AStopAfterACheckpointThatNobodyHereAskedForEndsTheJob) {
    start({.max_restarts = 3});
    const int64_t a = join("a");
    tell(Event::stopped, a, {exited(0, 138)});
    EXPECT_EQ(decisions_.back().kind, Kind::finish);
    EXPECT_EQ(decisions_.back().code, 138);
}

TEST_F(CoordinatorTest, AFailureCountsAlsoWhenItsAgentIsLostBeforeTheOthersHaveStopped) {
    start({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
    const int64_t a = join("a"), b = join("b");
    tell(Event::stopped, b, {killed(1)});
    EXPECT_EQ(decisions_.back().kind, Kind::end);
    tell(Event::gone, b);
    RankEnd end = exited(0, 138);
    end.stopped_by_agent = true;
    tell(Event::stopped, a, {end});
    EXPECT_EQ(decisions_.back().kind, Kind::end) << "it waits for the next agent, and has not ended with 0";
    join("b again");
    EXPECT_EQ(decisions_.back().kind, Kind::start);
    EXPECT_EQ(decisions_.back().restart_count, 1);
}

TEST_F(CoordinatorTest, ASilentAgentIsLost) {
    start({.min_nodes = 2, .max_nodes = 2, .silent_after_s = 15});
    const int64_t a = join("a");
    join("b");
    pass(14);
    coordinator_->hear_beat(a, now_ns_);
    pass(2);
    EXPECT_EQ(decisions_.back().kind, Kind::end);
    EXPECT_THAT(notes_, HasSubstr("b (pid 0, 1 rank) is lost: no sign of life for 15.0 s"));
    EXPECT_EQ(coordinator_->present_agents(), std::vector<int64_t>{a});
}

TEST_F(CoordinatorTest, OneThatWasThoughtLostIsCalledBackOnceWhenItShowsItLives) {
    start({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1, .silent_after_s = 15});
    const int64_t a = join("a"), b = join("b");
    pass(14);
    coordinator_->hear_beat(a, now_ns_);
    pass(2);
    EXPECT_THAT(coordinator_->agents_to_hear(), ElementsAre(a, b));
    kinds();
    tell(Event::stopped, b, {exited(1, 140)});
    EXPECT_THAT(kinds(), ElementsAre(Kind::call_back));
    EXPECT_EQ(last_.agent, b);
    coordinator_->hear_beat(b, now_ns_);
    look();
    EXPECT_THAT(kinds(), IsEmpty()) << "once is enough";
    EXPECT_THAT(coordinator_->agents_to_hear(), ElementsAre(a));
}

TEST_F(CoordinatorTest, ASilentAgentThatHasNotBegunIsCalledBackByItsBeatUnlessItHasGone) {
    start({.min_nodes = 3, .max_nodes = 3, .silent_after_s = 15});
    const int64_t a = join("a"), b = join("b");
    pass(16);
    tell(Event::gone, b);
    EXPECT_THAT(coordinator_->agents_to_hear(), ElementsAre(a));
    coordinator_->hear_beat(b, now_ns_);
    look();
    EXPECT_THAT(kinds(), IsEmpty());
    coordinator_->hear_beat(a, now_ns_);
    look();
    EXPECT_THAT(kinds(), ElementsAre(Kind::call_back));
}

TEST_F(CoordinatorTest, ARequestAtOneAgentReachesAllAndIsNoFailure) {
    start({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3});
    const int64_t a = join("a"), b = join("b");
    tell(Event::requested, b, {}, SIGTERM);
    EXPECT_EQ(decisions_.back().kind, Kind::stop);
    EXPECT_EQ(decisions_.back().signal, SIGTERM);
    RankEnd end = killed(0);
    end.stopped_by_agent = true;
    tell(Event::stopped, a, {end});
    tell(Event::stopped, b, {exited(1, 143)});
    EXPECT_EQ(decisions_.back().kind, Kind::finish);
    EXPECT_EQ(decisions_.back().code, 143);
}

TEST_F(CoordinatorTest, AnAgentThatComesBackTakesItsOldPlace) {
    start({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
    const int64_t a = join("a", 1, 0);
    join("b", 1, 1);
    join("b", 1, 1);
    EXPECT_EQ(decisions_.back().kind, Kind::end) << "not refused as a double";
    tell(Event::stopped, a, {exited(0, 140)});
    EXPECT_EQ(decisions_.back().kind, Kind::start);
    EXPECT_EQ(decisions_.back().members.size(), 2U);
}

TEST(AgentMessages, SurviveTheWire) {
    AgentEvent event{.kind = Event::stopped, .agent = 7, .round = 3, .signal = 15, .facts = {.identity = "i", .clock_s = 1.5}};
    event.ends = {{.rank = 4,
                   .host = "h",
                   .pid = 9,
                   .exit_code = 3,
                   .core_dumped = true,
                   .ended_ns = 5,
                   .step = 12,
                   .log = "l",
                   .stopped_by_agent = true,
                   .last_lines = {"one", "two"}}};
    const auto back = decode_event(encode(event));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->agent, 7);
    EXPECT_EQ(back->facts.clock_s, 1.5);
    ASSERT_EQ(back->ends.size(), 1U);
    EXPECT_EQ(back->ends[0].last_lines, event.ends[0].last_lines);
    EXPECT_EQ(back->ends[0].step, 12);
    EXPECT_TRUE(back->ends[0].stopped_by_agent);
    EXPECT_NEAR(static_cast<double>(back->ends[0].ended_ns), 5.0, 1e9) << "its age travelled";
    Decision decision{
        .kind = Kind::start, .round = 2, .members = {{.identity = "x", .node = 1, .first_rank = 2, .local_size = 3, .host = "h"}}};
    decision.lines = {"a"};
    const auto decided = decode_decision(encode(decision));
    ASSERT_TRUE(decided);
    EXPECT_EQ(decided->members[0].identity, "x");
    EXPECT_EQ(decided->members[0].local_size, 3);
    const std::string bytes = encode(decision);
    for (size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(decode_decision(std::string_view(bytes).substr(0, length)));
    EXPECT_FALSE(decode_event(std::string(200, '\xff')));
}

// Times travel as ages: one from the future, or from before all time, is what only a stranger sends.
TEST(AgentMessages, AnAgeThatCannotBeIsTakenForTheNearestThatCan) {
    for (const int64_t ended_ns : {std::numeric_limits<int64_t>::max(), int64_t{1}}) {
        const AgentEvent event{.kind = AgentEvent::Kind::failed, .ends = {{.rank = 1, .ended_ns = ended_ns}}};
        const auto back = decode_event(encode(event));
        ASSERT_TRUE(back);
        EXPECT_LE(back->ends.at(0).ended_ns, now_ns());
    }
}

}  // namespace
}  // namespace lockstep
