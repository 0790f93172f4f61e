// One job with one fault, from its start to its end.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/chaos_plan.h"

namespace lockstep::cli {

struct ChaosTarget {
    std::string config;
    std::vector<std::string> overrides;
    std::filesystem::path folder;  // gets a run folder and an output.log for each fault
};

struct DrillResult {
    std::string skipped;                  // why the fault cannot be made here; empty: it was made
    int exit_code = -1;                   // -1: it had to be ended at the limit
    double after_s = 0.0;                 // from the fault to the end of the job; 0 where the fault was there from the start
    std::vector<std::string> complaints;  // what was not as expected; empty: passed
    std::filesystem::path log;            // what the job printed
};

DrillResult run_drill(const Drill& drill, const ChaosPlan& plan, const ChaosTarget& target);

}  // namespace lockstep::cli
