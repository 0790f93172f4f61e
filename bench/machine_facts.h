// What a benchmark's figures depend on, as the system tells it. Unknown facts are empty or zero.
#pragma once

#include <cstddef>
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
    std::string congestion_control;      // of new TCP connections
    std::string queue_discipline;        // of new network devices
    std::vector<double> load_average;    // 1, 5 and 15 minutes
};

MachineFacts machine_facts();

size_t peak_resident_bytes();  // of this process, so far

// Of all cores since the machine's start, in clock ticks.
struct CpuTimes {
    double all = 0, stolen = 0;  // by the hypervisor, for other guests
};
CpuTimes cpu_times();
double steal_share(const CpuTimes& before, const CpuTimes& after);  // 0 .. 1

}  // namespace lockstep::bench
