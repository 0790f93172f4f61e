// Real processes for tests: start a program, watch it, kill it, read what it printed. Every wait has a limit; what outlives its
// object is killed with its whole process group.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/temporary_folder.h"

namespace lockstep::test {

struct Outcome {
    int exit_code = -1;  // -1 when it ended by a signal
    int signal = 0;
    bool timed_out = false;
    double seconds = 0.0;
    std::string output;  // stdout and stderr together, in order
    std::string last_line() const;
    bool says(const std::string& text) const { return output.find(text) != std::string::npos; }
};

class Program {
public:
    using Environment = std::vector<std::pair<std::string, std::string>>;  // an empty value unsets

    // Starts at once, in a process group of its own, stdin closed.
    explicit Program(const std::vector<std::string>& command, const Environment& environment = {});
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program();

    pid_t pid() const { return pid_; }
    void signal(int number) const;
    Outcome wait(double limit_s);                                   // kills it when the limit is reached
    bool wait_for_output(const std::string& text, double limit_s);  // false: not seen, or it ended before
    std::string output_so_far() const;

private:
    bool finished();
    pid_t pid_ = -1;
    bool done_ = false;
    int status_ = 0;
    double started_s_ = 0.0;
    std::filesystem::path log_;
};

// Runs to the end.
Outcome run(const std::vector<std::string>& command, double limit_s = 60.0, const Program::Environment& environment = {});

std::vector<pid_t> children_of(pid_t parent);    // direct ones, ascending
bool process_exists(pid_t pid);                  // and is not a zombie
std::vector<std::string> shared_memory_files();  // names in /dev/shm, but for those of Open MPI, whose jobs may run beside
bool eventually(double limit_s, const std::function<bool()>& condition);

// A new empty folder, removed at the end.
class TemporaryFolder : public lockstep::TemporaryFolder {
public:
    TemporaryFolder() : lockstep::TemporaryFolder("lockstep-test") {}
    std::filesystem::path operator/(const std::string& name) const { return path() / name; }
};

}  // namespace lockstep::test
