// Decides when a job's rounds begin and end: a pure machine, events and times in, decisions out. It lives in the agent that serves
// the store.
//
// A round is one life of the ranks: all start together and all end together. When a rank fails, an agent is lost or a new one
// comes, the round ends and, where the rules below allow it, the next one begins with all agents that are there.
//   - A failed rank uses up one of `max_restarts`. Its exit code decides whether trying again makes sense (restarts_help).
//   - With a fixed number of nodes a lost agent does too, and the job waits for its replacement, at most join_timeout.
//   - With min:max nodes a lost or new agent changes the number of nodes and costs nothing, as long as min is met.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/agent_messages.h"

namespace lockstep {

struct CoordinatorOptions {
    int min_nodes = 1, max_nodes = 1;
    int max_restarts = 0;
    bool own_program = false;  // the ranks are this program's own, whose exit code 1 is a fault that stays
    std::string run_name;      // for logs and the rounds' job ids
    std::string token;         // makes the rounds' job ids different from those of any other coordinator
    double join_timeout_s = 600;
    double last_call_s = 30;      // for more nodes, once min is met, before the first round
    double close_timeout_s = 30;  // for reports of a round that has ended
    double silent_after_s = 15;   // an agent without a sign of life is lost
    double settle_s = 1;          // after a new agent has come, for more of them, before a running round is paused
};

// Whether another attempt may go better. 0, 2, 3, 5, 130 and 138 end the job; of our own program 1 too.
bool restarts_help(const RankEnd& cause, bool own_program);

class Coordinator {
public:
    Coordinator(const CoordinatorOptions& options, int64_t now_ns);

    // `number`: the event's place in the list.
    void hear(const AgentEvent& event, int64_t number, int64_t now_ns);
    void hear_beat(int64_t agent, int64_t now_ns);
    void look_at_the_clock(int64_t now_ns);
    // In order; each is returned once.
    std::vector<Decision> take_decisions();

    bool is_finished() const { return phase_ == Phase::finished; }
    std::vector<int64_t> present_agents() const;
    // Whose signs of life count: those that are present, and those that were thought lost and may show one after all.
    std::vector<int64_t> agents_to_hear() const;

private:
    enum class Phase { gathering, running, ending, finished };
    struct Agent {
        AgentFacts facts;
        bool present = true;
        int64_t last_sign_ns = 0;
        bool in_round = false;
        bool reported = false;  // all its ranks of this round have ended
        std::vector<RankEnd> ends;
    };

    void add(const AgentEvent& event, int64_t number, int64_t now_ns);
    std::string why_not(const AgentFacts& facts) const;
    void call_back(int64_t agent);
    void drop(int64_t number, const std::string& how, int64_t now_ns);
    void lose(int64_t number, const std::string& how, int64_t now_ns);
    void hear_failure(Agent& agent, const AgentEvent& event, int64_t now_ns);
    void hear_request(const AgentEvent& event, int64_t now_ns);
    void begin_gathering(int64_t now_ns, bool last_call);
    void start_round(int64_t now_ns);
    void end_round(Decision::Kind how, int64_t now_ns);
    void close_round_if_complete(int64_t now_ns);
    void close_round(int64_t now_ns);
    bool start_over(const Verdict& verdict, const std::vector<RankEnd>& ends, int64_t now_ns);
    void finish(int code, std::vector<std::string> lines);
    void note(std::string text);
    int present_count() const;
    std::vector<int64_t> next_members() const;
    bool is_elastic() const { return options_.min_nodes != options_.max_nodes; }

    const CoordinatorOptions options_;
    Phase phase_ = Phase::gathering;
    std::map<int64_t, Agent> agents_;  // by number; those that are gone stay until the round is closed
    std::set<int64_t> dropped_;        // thought lost because they were silent
    std::vector<Decision> decisions_;
    int round_ = -1;
    int restarts_ = 0;
    int request_ = 0;                // the first signal that asked for the end
    bool member_changed_ = false;    // this round ends because of a new agent, and of nothing else so far
    std::vector<std::string> lost_;  // agents lost in this round, in words
    int64_t give_up_ns_ = 0;         // gathering: when too few have come
    int64_t last_call_ns_ = 0;       // gathering: when those that are there begin; 0: not before min is met
    bool wants_last_call_ = true;
    int64_t reports_due_ns_ = 0;  // ending
    int64_t pause_at_ns_ = 0;     // running: for agents that have come; 0: none has
};

}  // namespace lockstep
