#include "cli/drill_job.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "launch/child_process.h"

namespace lockstep::cli {

namespace {

// In the child. A job ends when whoever makes faults in it is killed: nobody else would end it.
[[noreturn]] void become(char* const* arguments, char* const* environment, const char* log, pid_t parent) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    const int input = open("/dev/null", O_RDONLY), output = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (dup2(input, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0)
        execve(arguments[0], arguments, environment);
    _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> found;
    for (std::string& word : words) found.push_back(word.data());
    found.push_back(nullptr);
    return found;
}

// Of a file in /proc, which may be gone.
std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

pid_t parent_of(pid_t pid) {
    const std::string status = content(fmt::format("/proc/{}/stat", pid));
    const size_t name_end = status.rfind(')');
    return name_end == std::string::npos ? 0 : std::atoi(status.c_str() + name_end + 4);  // ") S 123"
}

bool has_variable(pid_t pid, const std::string& variable) {
    const std::string all = '\0' + content(fmt::format("/proc/{}/environ", pid));
    return all.find('\0' + variable + '\0') != std::string::npos;
}

}  // namespace

DrillJob::DrillJob(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& variables,
                   fs::path log)
    : log_(std::move(log)) {
    std::vector<std::string> environment = environment_with(variables);
    std::vector<std::string> words = command;
    const std::vector<char*> arguments = pointers(words), values = pointers(environment);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw DeviceError(fmt::format("cannot start {}: {}", words[0], std::strerror(errno)));
    if (pid_ == 0) become(arguments.data(), values.data(), log_.c_str(), parent);
}

DrillJob::~DrillJob() {
    if (has_ended()) return;
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
}

bool DrillJob::has_ended() {
    int status = 0;
    if (exit_code_ || waitpid(pid_, &status, WNOHANG) != pid_) return exit_code_.has_value();
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended_s_ = 1e-9 * static_cast<double>(now_ns());
    return true;
}

void DrillJob::signal(int number) const { kill(pid_, number); }

std::string DrillJob::output() const { return read_file(log_); }

pid_t DrillJob::process_of_rank(int rank) const {
    std::error_code error;
    for (const auto& item : fs::directory_iterator("/proc", error)) {
        const pid_t pid = std::atoi(item.path().filename().c_str());
        if (pid <= 0 || parent_of(pid) != pid_) continue;
        if (has_variable(pid, fmt::format("LOCKSTEP_RANK={}", rank))) return pid;
    }
    return 0;
}

SmallDisk::SmallDisk(fs::path place) : place_(std::move(place)) {
    make_directories(place_);
    // In a view of the file systems that is this process's and its jobs' own: it goes with them, however they end.
    is_there_ = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                mount("none", place_.c_str(), "tmpfs", 0, "size=64m") == 0;
}

SmallDisk::~SmallDisk() {
    if (is_there_) umount2(place_.c_str(), MNT_DETACH);
}

void SmallDisk::fill() const {
    std::ofstream file(place_ / "filler", std::ios::binary);
    const std::string block(1 << 16, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
}

}  // namespace lockstep::cli
