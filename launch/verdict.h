// How a job ended: who failed first, which exit code follows, what the last lines on the screen say. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct RankEnd {
    int rank = 0;
    std::string host;
    pid_t pid = 0;
    int exit_code = 0;
    int signal = 0;  // > 0: it died by this signal
    bool core_dumped = false;
    int64_t ended_ns = 0;
    int64_t step = -1;                    // the last one that its output named; -1: none
    std::string log;                      // folder of its logs; empty: none
    std::string error;                    // what it said in its error file (launch/error_file.h); empty: nothing
    bool stopped_by_agent = false;        // it ended after the agent had begun to stop it
    std::vector<std::string> last_lines;  // of its error output, else of its output
};

// A rank that did not do its part by itself. 138 (stopped on request after a checkpoint) is no failure.
bool is_failure(const RankEnd& end);

struct Verdict {
    int first_failed = -1;  // index into the ends; -1: none
    int exit_code = 0;
};

// `request`: the signal that asked the agent to stop (SIGINT, SIGTERM, SIGHUP), or 0.
//
// The root is the first failure by time. Ranks that ended with 140 (a peer was lost) are followers when any rank failed otherwise:
// a rank may tell its peers before it has ended itself. Exit code: the root's own; 140 when a signal killed it. Without a failure:
// 130 after INT; after TERM or HUP 138 when the ranks stopped after a checkpoint, else 143; 138 when a rank says so; else 0.
Verdict judge(const std::vector<RankEnd>& ends, int request);

std::string describe_end(const RankEnd& end);  // "exit code 3 (data)", "killed by SIGSEGV (core dumped)"

// Table of all ranks, then the root, what it said in its error file unless its last lines say so too, and those. Lines without the
// final newline.
std::vector<std::string> closing_lines(const std::vector<RankEnd>& ends, const Verdict& verdict);

}  // namespace lockstep
