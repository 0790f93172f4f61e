// What a benchmark's figures depend on, as the system tells it. Unknown facts are empty or zero.
#pragma once

#include <string>
#include <vector>

namespace lockstep::bench {

struct MachineFacts {
    std::string cpu_model;
    int cores_online = 0;
    int cores_allowed = 0;  // in this process's affinity mask
    std::string governor;   // of core 0
    std::string kernel;
    std::string transparent_huge_pages;  // "always", "madvise" or "never"
    std::vector<double> load_average;    // 1, 5 and 15 minutes
};

MachineFacts machine_facts();

}  // namespace lockstep::bench
