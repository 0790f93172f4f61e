// What drills are made with: a job that is started, watched and ended, and a small disk.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli {

// A program in a process group of its own, which ends with this object; its output goes to a file. One thread.
class DrillJob {
public:
    // Throws DeviceError when no process can be started.
    DrillJob(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& variables,
             std::filesystem::path log);
    DrillJob(const DrillJob&) = delete;
    DrillJob& operator=(const DrillJob&) = delete;
    ~DrillJob();

    bool has_ended();
    int exit_code() const { return exit_code_.value_or(-1); }  // -1: it has not ended; 128 + the signal that ended it
    double ended_s() const { return ended_s_; }                // of now_ns
    void signal(int number) const;
    std::string output() const;
    // The process that is rank `rank` of this job; 0: not there.
    pid_t process_of_rank(int rank) const;

private:
    const std::filesystem::path log_;
    pid_t pid_ = 0;
    std::optional<int> exit_code_;
    double ended_s_ = 0.0;
};

// A small file system at a place, while it lives; where the system does not permit it, it is not there.
class SmallDisk {
public:
    explicit SmallDisk(std::filesystem::path place);
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    ~SmallDisk();
    bool is_there() const { return is_there_; }
    void fill() const;

private:
    const std::filesystem::path place_;
    bool is_there_ = false;
};

}  // namespace lockstep::cli
