// What `lockstep chaos` does to a job, and what must come of it. A plan is YAML:
//
//   ranks: 3
//   limit: 60s
//   faults:
//     - {fault: kill, rank: 1, at_step: 5}
//     - {fault: stop, rank: 0, name: the leader stops, expect: {exit: 140, says: [no progress], within: 4s}}
//
// A fault without `expect` has the usual one, which docs/faults.md lists.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

enum class Fault : uint8_t {
    kill,
    stop,
    pause,
    slow,
    terminate,
    nan,
    flip,
    wrong_config,
    corrupt_checkpoint,
    full_disk,
    cut_link,
    slow_link,
    clock_skew
};
std::string_view name_of(Fault fault);

struct Expectation {
    int exit_code = 0;
    std::vector<std::string> says;  // pieces of what the job prints, all of them
    double within_s = 0.0;          // from the fault to the end of the job; 0: only the plan's limit
};

struct Drill {
    std::string name;  // of the row and of the run's folder
    Fault fault = Fault::kill;
    int rank = 1;
    int64_t at_step = 5;  // the fault comes when this step has been made
    Expectation expect;
};

struct ChaosPlan {
    int ranks = 3;
    double limit_s = 60.0;  // of each job
    std::vector<Drill> drills;
};

inline constexpr double kCommTimeoutS = 2.0;  // comm.timeout of the jobs

// `place`: a file, or "all" for every fault once. Throws ConfigError with the place of what is wrong.
ChaosPlan read_plan(const std::string& place);

}  // namespace lockstep::cli
