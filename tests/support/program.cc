#include "tests/support/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"

namespace lockstep::test {

namespace {

constexpr auto kPoll = std::chrono::milliseconds(5);

double seconds_now() { return 1e-9 * static_cast<double>(now_ns()); }

fs::path new_path(const char* pattern) {
    std::string text = (fs::temp_directory_path() / pattern).string();
    const int file = mkstemp(text.data());
    check(file >= 0, "no temporary file");
    close(file);
    return text;
}

[[noreturn]] void become(const std::vector<std::string>& command, const Program::Environment& environment, const fs::path& log) {
    setpgid(0, 0);
    const int out = open(log.c_str(), O_WRONLY | O_APPEND);
    const int in = open("/dev/null", O_RDONLY);
    dup2(in, 0);
    dup2(out, 1);
    dup2(out, 2);
    for (const auto& [name, value] : environment) {
        if (value.empty()) {
            unsetenv(name.c_str());
        } else {
            setenv(name.c_str(), value.c_str(), 1);
        }
    }
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
}

}  // namespace

std::string Outcome::last_line() const {
    std::string text = output;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
}

Program::Program(const std::vector<std::string>& command, const Environment& environment)
    : started_s_(seconds_now()), log_(new_path("lockstep-test-XXXXXX")) {
    pid_ = fork();
    check(pid_ >= 0, "fork failed");
    if (pid_ == 0) become(command, environment, log_);
    setpgid(pid_, pid_);
}

Program::~Program() {
    if (!done_) {
        kill(-pid_, SIGKILL);
        waitpid(pid_, &status_, 0);
    }
    kill(-pid_, SIGKILL);
    fs::remove(log_);
}

void Program::signal(int number) const { kill(pid_, number); }

bool Program::finished() {
    if (!done_ && waitpid(pid_, &status_, WNOHANG) == pid_) done_ = true;
    return done_;
}

Outcome Program::wait(double limit_s) {
    Outcome outcome;
    outcome.timed_out = !eventually(limit_s, [this] { return finished(); });
    if (outcome.timed_out) {
        kill(-pid_, SIGKILL);
        waitpid(pid_, &status_, 0);
        done_ = true;
    }
    outcome.seconds = seconds_now() - started_s_;
    outcome.output = output_so_far();
    if (WIFEXITED(status_)) outcome.exit_code = WEXITSTATUS(status_);
    if (WIFSIGNALED(status_)) outcome.signal = WTERMSIG(status_);
    return outcome;
}

bool Program::wait_for_output(const std::string& text, double limit_s) {
    eventually(limit_s, [&] { return output_so_far().find(text) != std::string::npos || finished(); });
    return output_so_far().find(text) != std::string::npos;
}

std::string Program::output_so_far() const {
    std::ifstream file(log_);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

Outcome run(const std::vector<std::string>& command, double limit_s, const Program::Environment& environment) {
    return Program(command, environment).wait(limit_s);
}

std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> children;
    for (const auto& entry : fs::directory_iterator("/proc")) {
        const std::string name = entry.path().filename();
        if (!std::all_of(name.begin(), name.end(), ::isdigit)) continue;
        std::ifstream file(entry.path() / "stat");
        std::string text;
        std::getline(file, text);
        const size_t after_name = text.rfind(')');  // the command's name may hold spaces and brackets
        if (after_name == std::string::npos) continue;
        char state = ' ';
        pid_t its_parent = 0;
        std::istringstream(text.substr(after_name + 1)) >> state >> its_parent;
        if (its_parent == parent && state != 'Z') children.push_back(std::stoi(name));
    }
    std::sort(children.begin(), children.end());
    return children;
}

bool process_exists(pid_t pid) {
    std::ifstream file(fs::path("/proc") / std::to_string(pid) / "stat");
    std::string text;
    std::getline(file, text);
    const size_t after_name = text.rfind(')');
    return after_name != std::string::npos && text.size() > after_name + 2 && text[after_name + 2] != 'Z';
}

std::vector<std::string> shared_memory_files() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator("/dev/shm")) {
        const std::string name = entry.path().filename();
        if (!name.starts_with("vader_segment")) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

bool eventually(double limit_s, const std::function<bool()>& condition) {
    const double end_s = seconds_now() + limit_s;
    while (!condition()) {
        if (seconds_now() > end_s) return false;
        std::this_thread::sleep_for(kPoll);
    }
    return true;
}

}  // namespace lockstep::test
