// `lockstep run`: starts the ranks of this node, forwards their output line by line, watches them and ends them together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct AgentOptions {
    int nproc_per_node = 1;
    int node_count = 1, node_rank = 0;
    std::string master_addr = "127.0.0.1";
    int master_port = 0;               // 0: a free one (one node only)
    double grace_s = 2.0;              // between a rank's failure and TERM, and between TERM and KILL, for the others
    std::string log_dir;               // empty: none
    std::vector<std::string> command;  // program and arguments of one rank
};

// Returns the exit code for the shell. On failure the last lines name the first failed rank, its code or signal and its last
// error lines. No process, port or segment is left. INT, TERM, HUP, USR1 and USR2 stay blocked afterwards, so that a late one does
// not take the place of the exit code: the process is expected to end with it.
int run_agent(const AgentOptions& options);

}  // namespace lockstep
