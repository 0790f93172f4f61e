// What the driver of the allreduce benchmark and the processes of its contestants tell each other: a plan at the start, then turns.
// One JSON text per message; on the control socket one line each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::bench {

// The one argument of every contestant's program.
struct ContestantPlan {
    std::string control;  // path of the driver's unix socket
    std::string folder;   // of this contestant alone: start line, meeting point
    int number = 0;       // among all contestants
    int rank = -1;        // -1: the launcher knows (MPI)
    int rank_count = 1;
    int ranks_per_node = 1;
    int cores_per_rank = 0;                                     // rank r is bound to its own so many cores; 0: not bound
    bool yields = false;                                        // more runnable threads than cores: waiting gives the core away
    std::string store_host;                                     // rank 0's address
    std::string interface;                                      // between nodes; empty: one node, nothing is counted
    int64_t buffer_count = 0;                                   // floats: the largest unit with gaps
    std::vector<std::pair<std::string, std::string>> settings;  // the library's

    std::string setting(std::string_view name) const;  // empty when it is not there
    std::string to_json() const;
    static ContestantPlan from_json(const std::string& text);
};

// One series of calls. A unit is one tensor or several that are summed as one timed piece of work.
struct Turn {
    std::vector<int64_t> counts;  // floats of each tensor of the unit
    int64_t shift = 0;            // floats by which all tensors are moved from their aligned places
    int iterations = 1;           // timed; one untimed goes before
    uint32_t seed = 0;            // of the values; equal on all ranks

    std::string to_json() const;
    static Turn from_json(const std::string& text);
};

struct Hello {  // a process's first message
    int number = 0;
    int rank = 0;
    std::string version;
    std::string to_json() const;
    static Hello from_json(const std::string& text);
};

struct TurnResult {          // of one rank
    std::vector<double> us;  // by iteration: from the common start to this rank's end
    double cpu_s = 0;        // of all its threads, per call, mean
    double link_bytes = 0;   // sent by the whole node on the interface between nodes, per call; only from local rank 0
    std::string wrong;       // which element held what; empty: every result was exact
    std::string to_json() const;
    static TurnResult from_json(const std::string& text);
};

// Where each tensor of a unit begins in the buffer: on 64 bytes, as gradients do. Returns the floats needed.
int64_t place_tensors(const std::vector<int64_t>& counts, std::vector<int64_t>& offsets);

}  // namespace lockstep::bench
