// Starts one rank: its own process group, output into pipes, no input, killed by the kernel when this process dies.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep {

class Pipe {  // the reading end, non-blocking; move only
public:
    Pipe() = default;
    explicit Pipe(int descriptor) : descriptor_(descriptor) {}
    Pipe(Pipe&& other) noexcept;
    Pipe& operator=(Pipe&& other) noexcept;
    ~Pipe() { close(); }
    int descriptor() const { return descriptor_; }
    bool is_open() const { return descriptor_ >= 0; }
    void close();

private:
    int descriptor_ = -1;
};

struct ChildProcess {
    pid_t pid = -1;  // also the id of its process group
    Pipe standard_output, standard_error;
};

// `environment`: "NAME=value". `processors`: the child may run on these only; empty: on all. Searches PATH when command[0] has no
// slash. Throws ConfigError when the program cannot be started and DeviceError when the system gives no process or pipe. The
// calling thread must live as long as the child should.
ChildProcess start_child(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                         const std::vector<int>& processors = {});

// This process's environment with `additions` in place of variables of the same name.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& additions);

}  // namespace lockstep
