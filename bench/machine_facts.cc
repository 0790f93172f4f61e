#include "bench/machine_facts.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

namespace lockstep::bench {

namespace {

std::string first_line(const char* path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
    }
    return {};
}

int allowed_cores() {
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
}

// The kernel lists all choices and brackets the one in force.
std::string bracketed(const std::string& choices) {
    const size_t open = choices.find('['), close = choices.find(']');
    return open == std::string::npos || close == std::string::npos ? std::string() : choices.substr(open + 1, close - open - 1);
}

}  // namespace

MachineFacts machine_facts() {
    MachineFacts facts{.cpu_model = cpu_model(), .cores_allowed = allowed_cores()};
    facts.cores_online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    facts.governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    facts.transparent_huge_pages = bracketed(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
    facts.congestion_control = first_line("/proc/sys/net/ipv4/tcp_congestion_control");
    facts.queue_discipline = first_line("/proc/sys/net/core/default_qdisc");
    utsname system{};
    if (uname(&system) == 0) facts.kernel = system.release;
    std::array<double, 3> load{};
    if (getloadavg(load.data(), 3) == 3) facts.load_average.assign(load.begin(), load.end());
    return facts;
}

size_t peak_resident_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

CpuTimes cpu_times() {
    constexpr int kStealColumn = 8;  // user, nice, system, idle, iowait, irq, softirq, steal
    std::istringstream line(first_line("/proc/stat"));
    std::string name;
    line >> name;
    CpuTimes times;
    double ticks = 0;
    for (int column = 1; column <= kStealColumn && line >> ticks; ++column) {
        times.all += ticks;
        if (column == kStealColumn) times.stolen = ticks;
    }
    return times;
}

double steal_share(const CpuTimes& before, const CpuTimes& after) {
    return after.all > before.all ? (after.stolen - before.stolen) / (after.all - before.all) : 0.0;
}

}  // namespace lockstep::bench
