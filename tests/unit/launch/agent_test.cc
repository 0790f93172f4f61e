// The launcher with real processes. Each case runs the agent in a child of its own, so that signals and the screen can be watched.
#include "launch/agent.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "net/socket.h"
#include "net/store.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class AgentTest : public testing::Test {
protected:
    AgentTest()
        : folder_(fs::temp_directory_path() / ("lockstep-agent-" + std::to_string(getpid()) + "-" + std::to_string(now_ns()))) {
        fs::create_directories(folder_);
        prctl(PR_SET_CHILD_SUBREAPER, 1);  // whatever is left behind becomes our child, so it can be seen
    }
    ~AgentTest() override {
        if (agent_ > 0) {
            kill(agent_, SIGKILL);
            waitpid(agent_, nullptr, 0);
        }
        while (waitpid(-1, nullptr, WNOHANG) > 0) {
        }
        fs::remove_all(folder_);
    }

    void start(int ranks, const std::vector<std::string>& behaviour, AgentOptions options = {}) {
        options.nproc_per_node = ranks;
        options.command = {LOCKSTEP_RANK_PROGRAM};
        options.command.insert(options.command.end(), behaviour.begin(), behaviour.end());
        begin_ns_ = now_ns();
        agent_ = fork();
        if (agent_ == 0) become_agent(options);
    }

    // The exit code; fails the test when the agent is still there after `limit_s`.
    int wait_for_end(double limit_s = 10.0) {
        const Deadline deadline = Deadline::after_ms(static_cast<int64_t>(1000 * limit_s));
        int status = 0;
        while (waitpid(agent_, &status, WNOHANG) == 0) {
            if (deadline.expired()) {
                ADD_FAILURE() << "the agent is still there after " << limit_s << " s; screen:\n" << screen();
                return -1;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        agent_ = -1;
        took_s_ = 1e-9 * static_cast<double>(now_ns() - begin_ns_);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    int run(int ranks, const std::vector<std::string>& behaviour, const AgentOptions& options = {}) {
        start(ranks, behaviour, options);
        return wait_for_end();
    }

    void wait_for_text(const std::string& text, int times) {
        const Deadline deadline = Deadline::after_ms(10'000);
        while (count(screen(), text) < times) {
            ASSERT_FALSE(deadline.expired()) << "never saw " << text << "; screen:\n" << screen();
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }

    std::string screen(const std::string& name = "screen") const {
        std::ifstream file(folder_ / name);
        std::stringstream text;
        text << file.rdbuf();
        return text.str();
    }

    void expect_nothing_left() {
        const Deadline deadline = Deadline::after_ms(2000);  // the kernel needs a moment after a KILL
        while (waitpid(-1, nullptr, WNOHANG) >= 0 && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
        EXPECT_EQ(errno, ECHILD);
    }

    static int count(const std::string& text, const std::string& part) {
        int found = 0;
        for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
        return found;
    }

    [[noreturn]] void become_agent(const AgentOptions& options, const std::string& name = "screen") const {
        const int file = open((folder_ / name).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
        dup2(file, 1);
        dup2(file, 2);
        int code = 99;
        try {
            code = run_agent(options);
            if (late_signal_ != 0) raise(late_signal_);
        } catch (const Error& error) {
            dprintf(2, "error: %s\n", error.what());
            code = static_cast<int>(error.exit_code());
        }
        _exit(code);
    }

    fs::path folder_;
    pid_t agent_ = -1;
    int late_signal_ = 0;  // arrives after the agent's work and before its process has ended
    int64_t begin_ns_ = 0;
    double took_s_ = 0.0;
};

TEST_F(AgentTest, RanksKnowTheirPlaceAndEndWell) {
    EXPECT_EQ(run(3, {"world"}), 0);
    for (int rank = 0; rank < 3; ++rank) {
        const std::string number = std::to_string(rank);
        EXPECT_THAT(screen(), HasSubstr("[" + number + "]: " + number + " 3 " + number + " 3 lockstep\n"));
    }
    expect_nothing_left();
}

TEST_F(AgentTest, RanksMeetInTheAgentsStore) {
    EXPECT_EQ(run(3, {"meet"}), 0) << screen();
    EXPECT_EQ(count(screen(), "met "), 3);
}

TEST_F(AgentTest, TheFirstFailuresOwnCodeAndLastWordsCloseTheScreen) {
    EXPECT_EQ(run(3, {"1:say_and_exit=/data/a.tar", "sleep=60"}, {.grace_s = 0.2}), 3);
    EXPECT_LT(took_s_, 5.0);
    EXPECT_THAT(screen(), AllOf(HasSubstr("rank 1 failed first"), HasSubstr("exit code 3 (data)"),
                                EndsWith("[1]: [rank 1] error: /data/a.tar: record 7 is cut\n")));
    expect_nothing_left();
}

TEST_F(AgentTest, ExitCodesCrashesAbortsAndKillsEndAll) {
    struct Case {
        std::string behaviour;
        int code;
        std::string words;
    };
    for (const Case& failure : {Case{"exit=7", 7, "exit code 7"}, Case{"raise=11", 140, "SIGSEGV"}, Case{"raise=6", 140, "SIGABRT"},
                                Case{"raise=9", 140, "SIGKILL"}}) {
        EXPECT_EQ(run(3, {"2:" + failure.behaviour, "sleep=60"}, {.grace_s = 0.1}), failure.code) << screen();
        EXPECT_LT(took_s_, 5.0);
        EXPECT_THAT(screen(), HasSubstr("rank 2 failed first"));
        EXPECT_THAT(screen(), HasSubstr(failure.words));
        expect_nothing_left();
        fs::remove(folder_ / "screen");
    }
}

TEST_F(AgentTest, PeersThatNoticeAreNotBlamed) {
    EXPECT_EQ(run(3, {"0:late_exit=5", "follow=0.05"}, {.grace_s = 2.0}), 5);
    EXPECT_THAT(screen(), AllOf(HasSubstr("rank 0 failed first"), HasSubstr("exit code 140 (peer lost)")));
}

TEST_F(AgentTest, StubbornRanksAreKilled) {
    EXPECT_EQ(run(2, {"0:late_exit=4", "stubborn"}, {.grace_s = 0.2}), 4);
    EXPECT_LT(took_s_, 5.0);
    EXPECT_THAT(screen(), HasSubstr("killed by SIGKILL (stopped by the launcher)"));
    expect_nothing_left();
}

// Ranks of our own program have nothing to lose until they say that they are at work; nor do they notice that a peer is gone.
TEST_F(AgentTest, RanksOfOurOwnThatHaveNotMetAreEndedInASecond) {
    EXPECT_EQ(run(3, {"1:raise=9", "stubborn"}, {.own_program = true}), 140);
    const double before_s = took_s_;
    EXPECT_LT(before_s, 2.0);
    EXPECT_EQ(run(3, {"1:die_once_at_work", "stubborn_at_work"}, {.own_program = true}), 140);
    EXPECT_GT(took_s_, before_s + 1.0);
    expect_nothing_left();
}

TEST_F(AgentTest, InterruptIsForwardedAndEndsWith130) {
    start(2, {"wait_then=130"});
    wait_for_text("waiting", 2);
    kill(agent_, SIGINT);
    EXPECT_EQ(wait_for_end(5.0), 130);
    expect_nothing_left();
}

TEST_F(AgentTest, ASecondInterruptKillsAtOnce) {
    start(2, {"stubborn"}, {.grace_s = 30.0});
    wait_for_text("waiting", 2);
    kill(agent_, SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(agent_, SIGINT);
    EXPECT_EQ(wait_for_end(5.0), 130);
    expect_nothing_left();
}

TEST_F(AgentTest, ASignalThatComesTooLateDoesNotReplaceTheExitCode) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        late_signal_ = signal;
        EXPECT_EQ(run(1, {"exit=3"}, {.grace_s = 0.1}), 3) << "signal " << signal;
    }
}

TEST_F(AgentTest, TerminationAndHangupEndWith143) {
    for (const int signal : {SIGTERM, SIGHUP}) {
        start(2, {"wait_then=143"});
        wait_for_text("waiting", 2);
        kill(agent_, signal);
        EXPECT_EQ(wait_for_end(5.0), 143);
        expect_nothing_left();
        fs::remove(folder_ / "screen");
    }
}

TEST_F(AgentTest, UserSignalsAreForwardedAndARequeueIsNoFailure) {
    start(2, {"wait_then=138"});
    wait_for_text("waiting", 2);
    kill(agent_, SIGUSR1);
    EXPECT_EQ(wait_for_end(5.0), 138);
    EXPECT_THAT(screen(), Not(HasSubstr("failed")));
}

TEST_F(AgentTest, RanksDieWithTheAgent) {
    start(3, {"stubborn"});
    wait_for_text("waiting", 3);
    kill(agent_, SIGKILL);
    EXPECT_EQ(wait_for_end(5.0), -SIGKILL);
    expect_nothing_left();
}

TEST_F(AgentTest, ProcessesLeftByARankAreEnded) {
    EXPECT_EQ(run(2, {"leave_child"}), 0);
    EXPECT_LT(took_s_, 5.0);
    expect_nothing_left();
}

TEST_F(AgentTest, LinesOfManyRanksNeverInterleave) {
    EXPECT_EQ(run(4, {"lines=300"}), 0);
    std::istringstream lines(screen());
    int found = 0;
    for (std::string line; std::getline(lines, line); ++found) {
        ASSERT_EQ(line.size(), 205U) << line;
        EXPECT_EQ(line.substr(5), std::string(200, static_cast<char>('a' + (line[1] - '0'))));
    }
    EXPECT_EQ(found, 1200);
}

TEST_F(AgentTest, ProgressBarsBecomeLinesWithoutCarriageReturns) {
    EXPECT_EQ(run(1, {"progress"}), 0);
    EXPECT_EQ(screen(), "[0]: 10%\n[0]: 20%\n[0]: 30%\n[0]: no end\n");
}

TEST_F(AgentTest, LogsHoldEachRanksOwnOutput) {
    EXPECT_EQ(run(2, {"1:say_and_exit=x", "world"}, {.run_id = "mine", .log_dir = (folder_ / "logs").string()}), 3);
    EXPECT_EQ(read_file(folder_ / "logs/mine/0/0/stdout.log"), "0 2 0 2 lockstep\n");
    EXPECT_THAT(read_file(folder_ / "logs/mine/0/1/stderr.log"), HasSubstr("record 7 is cut"));
}

TEST_F(AgentTest, ATakenPortIsNamedAtOnce) {
    const auto other = StoreServer::start({.bind_host = "127.0.0.1", .port = 0, .job_id = "other"});
    EXPECT_EQ(
        run(2, {"world"}, {.endpoint_port = other->port(), .port_option = "--master-port " + std::to_string(other->port()) + ": "}),
        4);
    EXPECT_LT(took_s_, 5.0);
    EXPECT_THAT(screen(), HasSubstr("--master-port " + std::to_string(other->port())));
}

TEST_F(AgentTest, AMissingProgramIsNamed) {
    AgentOptions options{.nproc_per_node = 2, .command = {"/nonexistent/program"}};
    agent_ = fork();  // as in start(), but with this command
    if (agent_ == 0) become_agent(options);
    EXPECT_EQ(wait_for_end(), 2);
    EXPECT_THAT(screen(), HasSubstr("/nonexistent/program"));
    expect_nothing_left();
}

// Several agents of one job on this machine, each in a process with a screen of its own.
class AgentsTest : public AgentTest {
protected:
    AgentsTest() { setenv("LOCKSTEP_JOB_SECRET", "a secret of this test", 1); }
    ~AgentsTest() override {
        unsetenv("LOCKSTEP_JOB_SECRET");
        for (const pid_t agent : agents_) {
            if (agent > 0) kill(agent, SIGKILL);
            if (agent > 0) waitpid(agent, nullptr, 0);
        }
    }

    static inline const AgentOptions kPatient{.min_nodes = 2, .max_nodes = 2, .max_restarts = 2, .grace_s = 1};

    // Starts agent number `agents_.size()`.
    void start_agent(const std::vector<std::string>& behaviour, AgentOptions options) {
        options.endpoint_port = port_;
        options.hosting = Hosting::where_possible;
        options.run_id = "test";
        options.last_call_s = 0.3;
        options.log_dir = (folder_ / "logs").string();
        options.command = {LOCKSTEP_RANK_PROGRAM};
        options.command.insert(options.command.end(), behaviour.begin(), behaviour.end());
        const std::string name = "screen" + std::to_string(agents_.size());
        agents_.push_back(fork());
        if (agents_.back() == 0) become_agent(options, name);
    }
    // Of a job that its second attempt ends well.
    void start_two_of_which_the_first_serves() {
        for (int agent = 0; agent < 2; ++agent) {
            start_agent({"until_attempt=1"}, kPatient);
            wait_for_all_screens("at work", 0);
            std::this_thread::sleep_for(std::chrono::milliseconds(agent == 0 ? 300 : 0));
        }
        wait_for_all_screens("of 2 at work", 2);
    }

    int wait_for_agent(size_t agent, double limit_s = 20.0) {
        agent_ = std::exchange(agents_[agent], -1);
        return wait_for_end(limit_s);
    }

    std::string screens() const {
        std::string all;
        for (size_t agent = 0; agent < agents_.size(); ++agent) {
            all += "--- " + std::to_string(agent) + "\n" + screen("screen" + std::to_string(agent));
        }
        return all;
    }
    void wait_for_all_screens(const std::string& text, int times) {
        const Deadline deadline = Deadline::after_ms(20'000);
        while (count(screens(), text) < times) {
            ASSERT_FALSE(deadline.expired()) << "never saw " << text << "; screens:\n" << screens();
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }

    std::vector<pid_t> agents_;
    const int port_ = bound_port(listen_on("127.0.0.1", 0).get());
};

TEST_F(AgentsTest, RanksOfTwoAgentsAreOneWorldAndMeetInOneStore) {
    for (const int ranks : {1, 2}) start_agent({"meet"}, {.nproc_per_node = ranks, .min_nodes = 2, .max_nodes = 2});
    for (const size_t agent : {0, 1}) EXPECT_EQ(wait_for_agent(agent), 0) << screens();
    for (const char* line : {"met 0 of 3", "met 1 of 3", "met 2 of 3"}) EXPECT_EQ(count(screens(), line), 1) << screens();
    expect_nothing_left();
}

TEST_F(AgentsTest, AFailureOnOneNodeEndsAllWithItsCodeAndOneTable) {
    const AgentOptions options{.min_nodes = 2, .max_nodes = 2, .grace_s = 0.2, .own_program = true};
    start_agent({"1:say_and_exit=/data/b.tar", "sleep=60"}, options);
    start_agent({"1:say_and_exit=/data/b.tar", "sleep=60"}, options);
    for (const size_t agent : {0, 1}) EXPECT_EQ(wait_for_agent(agent), 3) << screens();
    EXPECT_EQ(count(screens(), "rank 1 failed first"), 1) << screens();
    EXPECT_EQ(count(screens(), "the launcher of node 0 says why"), 1) << screens();
    expect_nothing_left();
}

TEST_F(AgentsTest, ALostRankStartsAllAgainWithANewJobIdUntilItEndsWell) {
    const AgentOptions options{.min_nodes = 2, .max_nodes = 2, .max_restarts = 3, .grace_s = 0.2};
    for (int agent = 0; agent < 2; ++agent) start_agent({"1:fail_until=2", "meet_or_follow=2"}, options);
    for (const size_t agent : {0, 1}) EXPECT_EQ(wait_for_agent(agent), 0) << screens();
    EXPECT_THAT(screens(), AllOf(HasSubstr("restart 1 of 3"), HasSubstr("restart 2 of 3"), Not(HasSubstr("restart 3 of 3"))));
    EXPECT_THAT(read_file(folder_ / "logs/test/2/1/stdout.log"), HasSubstr("attempt 2"));
    expect_nothing_left();
}

TEST_F(AgentsTest, TheJobShrinksWhenAnAgentIsKilledAndGrowsWhenOneComes) {
    const AgentOptions options{.min_nodes = 1, .max_nodes = 3, .grace_s = 5};
    const std::vector<std::string> behaviour{"until_world=3"};
    for (int agent = 0; agent < 2; ++agent) start_agent(behaviour, options);
    wait_for_all_screens("of 2 at work", 2);
    kill(agents_[1], SIGKILL);
    wait_for_all_screens("of 1 at work", 1);
    for (int agent = 0; agent < 2; ++agent) start_agent(behaviour, options);
    for (const size_t agent : {0, 2, 3}) EXPECT_EQ(wait_for_agent(agent), 0) << screens();
    EXPECT_EQ(count(screens(), "of 3 at work"), 3) << screens();
    waitpid(std::exchange(agents_[1], -1), nullptr, 0);
    expect_nothing_left();
}

TEST_F(AgentsTest, WhenTheServingAgentIsKilledAnotherTakesOver) {
    start_two_of_which_the_first_serves();
    kill(agents_[0], SIGKILL);
    start_agent({"until_attempt=1"}, kPatient);
    for (const size_t agent : {1, 2}) EXPECT_EQ(wait_for_agent(agent), 0) << screens();
    EXPECT_EQ(count(screens(), "trying to join the run again"), 1) << screens();
}

// Its store answers again, at the same place, and is another one.
TEST_F(AgentsTest, AnAgentThatWasStoppedForTooLongComesBack) {
    AgentOptions options = kPatient;
    options.keep_alive_s = 0.2;
    for (int agent = 0; agent < 2; ++agent) {
        start_agent({"until_attempt=1"}, options);
        wait_for_all_screens("at work", 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(agent == 0 ? 300 : 0));
    }
    wait_for_all_screens("of 2 at work", 2);
    kill(agents_[1], SIGSTOP);
    wait_for_all_screens("is lost: no sign of life", 1);
    kill(agents_[1], SIGCONT);
    for (const size_t agent : {0, 1}) EXPECT_EQ(wait_for_agent(agent), 0) << screens();
    expect_nothing_left();
}

TEST_F(AgentsTest, ASurvivorThatFindsAnotherServerInTheOldOnesPlaceJoinsAnew) {
    start_two_of_which_the_first_serves();
    kill(agents_[1], SIGSTOP);
    kill(agents_[0], SIGKILL);
    start_agent({"until_attempt=1"}, kPatient);
    wait_for_all_screens("is here, 1 of 2 nodes now", 2);
    kill(agents_[1], SIGCONT);
    for (const size_t agent : {1, 2}) EXPECT_EQ(wait_for_agent(agent), 0) << screens();
    EXPECT_EQ(count(screens(), "trying to join the run again"), 1) << screens();
}

TEST_F(AgentsTest, ASignalToOneAgentEndsAll) {
    for (int agent = 0; agent < 2; ++agent) start_agent({"wait_then=143"}, {.min_nodes = 2, .max_nodes = 2});
    wait_for_all_screens("waiting", 2);
    kill(agents_[1], SIGTERM);
    for (const size_t agent : {0, 1}) EXPECT_EQ(wait_for_agent(agent, 5.0), 143) << screens();
}

TEST_F(AgentsTest, AnInterruptWhileNodesAreMissingEndsAtOnce) {
    start_agent({"world"}, {.min_nodes = 2, .max_nodes = 2});
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(agents_[0], SIGINT);
    EXPECT_EQ(wait_for_agent(0, 4.0), 130) << screens();
}

TEST_F(AgentsTest, OneThatCannotJoinYetSaysWhyAndGivesUpInTime) {
    start_agent({"world"}, {.min_nodes = 2, .max_nodes = 2, .endpoint_host = "no-such-host.invalid", .join_timeout_s = 7});
    wait_for_all_screens("cannot join the run at no-such-host.invalid", 1);
    EXPECT_THAT(screens(), HasSubstr("trying for up to 7 s"));
    EXPECT_EQ(wait_for_agent(0), 140) << screens();
    EXPECT_EQ(count(screens(), " yet ("), 1) << screens();
}

TEST_F(AgentsTest, StrangersAreTurnedAwayToldOnceAndHarmNobody) {
    const AgentOptions options{.min_nodes = 2, .max_nodes = 2};
    start_agent({"until_file=" + (folder_ / "go").string()}, options);
    start_agent({"until_file=" + (folder_ / "go").string()}, options);
    wait_for_all_screens("of 2 at work", 2);
    EXPECT_THROW(connect_store({.port = port_, .job_id = agents_table("test"), .connect_timeout_ms = 2000}), StoreRefused);
    EXPECT_THROW(connect_store({.port = port_, .job_id = agents_table("test"), .secret = "guess", .connect_timeout_ms = 2000}),
                 StoreRefused);
    std::vector<Socket> silent;
    for (int count = 0; count < 300; ++count) silent.push_back(connect_socket("127.0.0.1", port_, 5000));
    wait_for_all_screens("a stranger was turned away", 1);
    write_file_atomically(folder_ / "go", "");
    for (const size_t agent : {0, 1}) EXPECT_EQ(wait_for_agent(agent), 0) << screens();
    EXPECT_EQ(count(screens(), "stranger"), 1) << screens();
}

TEST_F(AgentsTest, AnAgentWithAnotherSecretIsRefusedAndTheJobGoesOn) {
    const AgentOptions options{.min_nodes = 2, .max_nodes = 2};
    start_agent({"world"}, options);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    setenv("LOCKSTEP_JOB_SECRET", "not the secret of this test", 1);
    start_agent({"world"}, options);
    EXPECT_EQ(wait_for_agent(1), 2);
    EXPECT_THAT(screens(), HasSubstr("does not know the job's secret; set LOCKSTEP_JOB_SECRET"));
    setenv("LOCKSTEP_JOB_SECRET", "a secret of this test", 1);
    start_agent({"world"}, options);
    for (const size_t agent : {0, 2}) EXPECT_EQ(wait_for_agent(agent), 0) << screens();
}

TEST(AgentOptionsCheck, ImpossibleOptionsAreRefused) {
    EXPECT_THROW(run_agent({.nproc_per_node = 0, .command = {"true"}}), ConfigError);
    EXPECT_THROW(run_agent({.min_nodes = 2, .max_nodes = 2, .node_rank = 2, .endpoint_port = 1, .command = {"true"}}), ConfigError);
    EXPECT_THROW(run_agent({.min_nodes = 2, .max_nodes = 2, .command = {"true"}}), ConfigError) << "no port";
    EXPECT_THROW(run_agent({.min_nodes = 3, .max_nodes = 2, .endpoint_port = 1, .command = {"true"}}), ConfigError);
    EXPECT_THROW(run_agent({}), ConfigError) << "no command";
}

// A rank may count while its start is not quite over, which holds a few.
TEST_F(AgentTest, RoundsLeaveNoFilesOpen) {
    constexpr int kLast = 10, kOfAStart = 5;
    AgentOptions options;
    options.max_restarts = kLast;
    ASSERT_EQ(run(1, {"count_files_until=10"}, options), 0);
    const auto files_at = [this](int attempt) {
        const std::string start = "attempt " + std::to_string(attempt) + " files ";
        return std::stoi(screen().substr(screen().find(start) + start.size()));
    };
    EXPECT_LE(files_at(kLast), files_at(1) + kOfAStart) << screen();
}

// A pager that waits for a key: the launcher still hears what it is told, and still keeps the ranks in step with the screen.
TEST_F(AgentTest, AScreenThatStandsStillKeepsNobodyFromEndingTheJob) {
    std::array<int, 2> pipe_ends{};
    ASSERT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
    AgentOptions options;
    options.nproc_per_node = 2;
    options.grace_s = 1;
    options.command = {LOCKSTEP_RANK_PROGRAM, "lines=100000"};
    begin_ns_ = now_ns();
    agent_ = fork();
    if (agent_ == 0) {
        dup2(pipe_ends[1], 1);
        dup2(pipe_ends[1], 2);
        _exit(run_agent(options));
    }
    close(pipe_ends[1]);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ASSERT_EQ(waitpid(agent_, nullptr, WNOHANG), 0) << "20 MB do not fit into a pipe: the ranks wait";
    kill(agent_, SIGTERM);
    EXPECT_EQ(wait_for_end(10.0), 143);
    close(pipe_ends[0]);
    expect_nothing_left();
}

// Kept with the logs where there are logs; else in a folder that goes with the launcher.
TEST_F(AgentTest, WhatAFailedRankWroteInItsErrorFileIsShown) {
    const fs::path temporary = folder_ / "tmp";
    fs::create_directories(temporary);
    setenv("TMPDIR", temporary.c_str(), 1);
    EXPECT_EQ(run(2, {"sleep=60", "1:write_error=wrong shape"}), 1);
    EXPECT_THAT(screen(), HasSubstr("failed first"));
    EXPECT_THAT(screen(), HasSubstr("\nits error file: ValueError: wrong shape of 1\n"));
    EXPECT_TRUE(fs::is_empty(temporary));
    unsetenv("TMPDIR");

    AgentOptions options;
    options.log_dir = (folder_ / "logs").string();
    options.run_id = "kept";
    const fs::path kept = folder_ / "logs" / "kept" / "0" / "1" / "error.json";
    fs::create_directories(kept.parent_path());
    std::ofstream(kept) << R"({"message": "of another run"})";
    EXPECT_EQ(run(2, {"sleep=60", "1:exit=1"}, options), 1);
    EXPECT_EQ(count(screen(), "of another run"), 0);
    EXPECT_EQ(run(2, {"sleep=60", "1:write_error=wrong size"}, options), 1);
    EXPECT_THAT(read_file(kept), HasSubstr("wrong size of 1"));
    EXPECT_EQ(count(screen(), "its error file: ValueError: wrong size of 1"), 1);
    expect_nothing_left();
}

}  // namespace
}  // namespace lockstep
