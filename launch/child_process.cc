#include "launch/child_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

extern char** environ;  // NOLINT: POSIX names it so

namespace lockstep {

namespace {

struct PipePair {
    Pipe reading, writing;
};

[[noreturn]] void throw_no_file(const char* what) {
    throw DeviceError(fmt::format("{} for a rank: {}; raise the limit of open files (ulimit -n)", what, std::strerror(errno)));
}

PipePair make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_no_file("no pipe");
    return {Pipe(ends[0]), Pipe(ends[1])};
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
    pointers.push_back(nullptr);
    return pointers;
}

struct ChildPlan {
    char* const* arguments;
    char* const* environment;
    int input, output, error, report;  // descriptors
    pid_t parent;
    const cpu_set_t* processors;  // null: all
};

// After fork in a process with threads only async-signal-safe calls are allowed: no allocation, no locks.
[[noreturn]] void become_program(const ChildPlan& plan) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != plan.parent) _exit(127);  // the parent died before the line above
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);
    if (plan.processors != nullptr) sched_setaffinity(0, sizeof *plan.processors, plan.processors);
    if (dup2(plan.input, 0) >= 0 && dup2(plan.output, 1) >= 0 && dup2(plan.error, 2) >= 0) {
        execvpe(plan.arguments[0], plan.arguments, plan.environment);
    }
    const int reason = errno;
    if (write(plan.report, &reason, sizeof reason) != sizeof reason) _exit(126);
    _exit(127);
}

void set_non_blocking(const Pipe& pipe) { fcntl(pipe.descriptor(), F_SETFL, O_NONBLOCK); }

}  // namespace

Pipe::Pipe(Pipe&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Pipe& Pipe::operator=(Pipe&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

void Pipe::close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
}

ChildProcess start_child(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                         const std::vector<int>& processors) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (const int processor : processors) CPU_SET(static_cast<size_t>(processor), &mask);
    PipePair output = make_pipe(), error = make_pipe(), report = make_pipe();
    const Pipe input(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (input.descriptor() < 0) throw_no_file("no empty input");
    const std::vector<char*> arguments = pointers_to(command), variables = pointers_to(environment);
    const ChildPlan plan{arguments.data(),
                         variables.data(),
                         input.descriptor(),
                         output.writing.descriptor(),
                         error.writing.descriptor(),
                         report.writing.descriptor(),
                         getpid(),
                         processors.empty() ? nullptr : &mask};
    const pid_t pid = fork();
    if (pid < 0)
        throw DeviceError(
            fmt::format("cannot start a process: {}; check the limit of processes (ulimit -u)", std::strerror(errno)));
    if (pid == 0) become_program(plan);
    setpgid(pid, pid);  // here too: whichever of the two runs first
    report.writing.close();
    int reason = 0;
    ssize_t got = 0;
    do {
        got = read(report.reading.descriptor(), &reason, sizeof reason);  // ends at exec, which closes the other end
    } while (got < 0 && errno == EINTR);
    if (got == sizeof reason) {
        waitpid(pid, nullptr, 0);
        throw ConfigError(fmt::format("cannot start `{}`: {}; check the command after --", command[0], std::strerror(reason)));
    }
    set_non_blocking(output.reading);
    set_non_blocking(error.reading);
    return {pid, std::move(output.reading), std::move(error.reading)};
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& additions) {
    std::vector<std::string> result;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string text(*variable);
        bool replaced = false;
        for (const auto& [name, value] : additions) replaced = replaced || text.starts_with(name + "=");
        if (!replaced) result.push_back(text);
    }
    for (const auto& [name, value] : additions) result.push_back(fmt::format("{}={}", name, value));
    return result;
}

}  // namespace lockstep
