// What the launchers of a job's nodes, the agents, say to each other through the store of the first one. Plain data and its bytes.
//
// Two lists in the store carry everything: agents append events, the coordinator (in the process that serves the store) appends
// decisions, and everybody reads in order. An agent's number is the place of its `joined` in the list of events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/verdict.h"

namespace lockstep {

inline constexpr const char* kEventList = "event";
inline constexpr const char* kDecisionList = "decision";
std::string beat_key(int64_t agent);  // what an agent changes to show that it is alive

// What an agent says of itself when it joins.
struct AgentFacts {
    std::string identity;  // random; the same agent that comes back says the same
    std::string host;
    int pid = 0;
    std::string address;  // where other nodes reach this one
    int free_port = 0;    // for the program's own meeting, should this be the first node
    int local_size = 1;   // ranks it will start
    int node_rank = -1;   // the number its user gave it; -1: none
    int restarts = 0;     // that the job has had, as far as it knows
    double clock_s = 0;   // its wall clock
};

struct AgentEvent {
    enum class Kind : uint8_t {
        joined = 1,  // facts
        failed,      // ends: of the ranks of `round` that failed, while others still run
        stopped,     // ends: of all its ranks of `round`
        requested,   // signal: that somebody sent to this agent
        left,        // it has understood the last decision
        gone         // its connection has ended
    };
    Kind kind = Kind::joined;
    int64_t agent = -1;  // joined: not known yet
    int round = 0;
    int signal = 0;
    AgentFacts facts;
    std::vector<RankEnd> ends;
};

struct RoundMember {
    std::string identity;  // of the agent
    int node = 0;
    int first_rank = 0;
    int local_size = 1;
    std::string host;
};

struct Decision {
    enum class Kind : uint8_t {
        start = 1,  // a new round: members, world_size, ...
        end,        // of this round: stop the ranks and report; at_work
        pause,      // of this round: ask the ranks to leave after a checkpoint, then report
        stop,       // signal: pass it to the ranks, the job is to end
        finish,     // leave with `code`; lines: what the host's screen shows last
        refuse,     // `agent` alone leaves with `code`
        note,       // lines for the host's screen
        call_back   // `agent` was thought lost: it joins again
    };
    Kind kind = Kind::note;
    int round = 0;
    int64_t agent = -1;
    std::vector<RoundMember> members;
    int world_size = 0;
    std::string master_addr;
    int master_port = 0;
    std::string job_id;    // of the round: the ranks' own table in the store
    std::string run_name;  // for logs; the same in all rounds
    int restart_count = 0;
    int signal = 0;
    int code = 0;
    bool at_work = true;  // false: the ranks of our own program have not met yet, and none has anything to lose
    std::vector<std::string> lines;
};

// The table in which the agents of a run meet.
std::string agents_table(std::string_view run_id);

std::string encode(const AgentEvent& event);
std::string encode(const Decision& decision);
// nullopt: not what `encode` gives.
std::optional<AgentEvent> decode_event(std::string_view bytes);
std::optional<Decision> decode_decision(std::string_view bytes);

}  // namespace lockstep
