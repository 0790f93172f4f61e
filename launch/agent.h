// `lockstep run`: one agent per node starts the ranks of its node, forwards their output line by line, watches them and ends them
// together; the agents of several nodes meet in the store of one of them and act as one.
#pragma once

#include <string>
#include <vector>

#include "launch/agent_link.h"
#include "launch/core_binding.h"

namespace lockstep {

// Where one stream of a local rank goes besides the log folder.
struct ShownStreams {
    bool output = true, error = true;
};

struct AgentOptions {
    int nproc_per_node = 1;
    int min_nodes = 1, max_nodes = 1;
    int node_rank = -1;  // -1: in the order of joining

    // Where the agents meet. With one node 127.0.0.1 and a free port (0).
    std::string endpoint_host = "127.0.0.1";
    int endpoint_port = 0;
    std::string port_option;  // what a message about a taken port begins with
    Hosting hosting = Hosting::always;
    std::string run_id;      // the same on all nodes; names the logs too. Empty: made up
    std::string local_addr;  // of this node, as the others reach it; empty: the one that reaches the endpoint
    double join_timeout_s = 600, last_call_s = 30, close_timeout_s = 30;
    double keep_alive_s = 5;
    int keep_alive_misses = 3;

    int max_restarts = 0;
    double monitor_interval_s = 0.1;
    double grace_s = 30;  // for the ranks to end after a signal, before KILL; after a rank's failure its peers get at most 2 s
    std::vector<int> signals = default_signals();  // that are passed on; the others end the agent as the system does

    std::string role;                 // before the rank's number on the screen, and in ROLE_NAME
    std::string log_dir;              // LOG_DIR/<run>/<round>/<rank>/{stdout,stderr}.log; empty: none
    std::vector<ShownStreams> shown;  // by local rank; those that are missing are shown
    CoreBinding binding = CoreBinding::none;

    bool own_program = false;          // `lockstep` itself, whose exit codes are known
    std::vector<std::string> command;  // program and arguments of one rank

    bool this_machine_only() const;  // all ranks are on this machine

    static std::vector<int> default_signals();
};

// Returns the exit code for the shell. On failure the last lines name the first failed rank, its code or signal and its last
// error lines. No process, port or segment is left. `signals` stay blocked afterwards, so that a late one does not take the place
// of the exit code: the process is expected to end with it.
//
// The job's secret comes from the environment (net/secrets.h). On one node one is made up when there is none, and told to the
// ranks in LOCKSTEP_JOB_SECRET.
int run_agent(const AgentOptions& options);

}  // namespace lockstep
