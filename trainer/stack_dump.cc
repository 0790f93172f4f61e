#include "trainer/stack_dump.h"

#include <cxxabi.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "core/host.h"

namespace lockstep {

namespace {

constexpr int kMostFrames = 64;
constexpr int kPatienceMs = 200;  // for a thread to answer
constexpr char kRequest = 'r', kEnd = 'e';

// What handlers reach: one thread is visited at a time, by the thread of the one StackDump.
std::atomic<int> request_pipe{-1};
std::array<void*, kMostFrames> frames;
std::atomic<int> frame_count{0};
std::atomic<int> visited_thread{0};  // the answer is that of this thread; 0: nobody is asked

int visit_signal() { return SIGRTMIN + 3; }

extern "C" void note_request(int) {
    const int saved = errno;
    [[maybe_unused]] const ssize_t ignored = write(request_pipe, &kRequest, 1);
    errno = saved;
}

extern "C" void answer_visit(int) {
    const int saved = errno;
    if (static_cast<int>(syscall(SYS_gettid)) == visited_thread) frame_count = backtrace(frames.data(), kMostFrames);
    errno = saved;
}

// "lockstep(_ZN8lockstep3RunC1Ev+0x12) [0x55d0]" with the name as it was written.
std::string readable(const std::string& frame) {
    const size_t begin = frame.find('(');
    const size_t end = frame.find('+', begin);
    if (begin == std::string::npos || end == std::string::npos || end == begin + 1) return frame;
    int status = 0;
    const std::string mangled = frame.substr(begin + 1, end - begin - 1);
    const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status),
                                                           &std::free);
    return status == 0 ? frame.substr(0, begin + 1) + name.get() + frame.substr(end) : frame;
}

std::string stack_of(int thread) {
    frame_count = 0;
    visited_thread = thread;
    if (syscall(SYS_tgkill, getpid(), thread, visit_signal()) != 0) return "  has ended\n";
    for (int waited_ms = 0; frame_count == 0 && waited_ms < kPatienceMs; ++waited_ms) usleep(1000);
    visited_thread = 0;
    if (frame_count == 0) return "  gives no answer\n";
    const std::unique_ptr<char*, decltype(&std::free)> names(backtrace_symbols(frames.data(), frame_count), &std::free);
    std::string text;
    constexpr int kOfTheHandler = 2;
    for (int index = kOfTheHandler; index < frame_count; ++index) text += fmt::format("  {}\n", readable(names.get()[index]));
    return text;
}

std::string first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

}  // namespace

StackDump::StackDump(std::filesystem::path file) : file_(std::move(file)) {
    backtrace(frames.data(), 1);  // loads what it needs, which a handler may not
    check(pipe(requests_) == 0, "a pipe can be made");
    request_pipe = requests_[1];
    struct sigaction action {};
    action.sa_flags = SA_RESTART;
    action.sa_handler = note_request;
    sigaction(SIGUSR2, &action, nullptr);
    action.sa_handler = answer_visit;
    sigaction(visit_signal(), &action, nullptr);
    thread_ = std::thread([this] { serve(); });
}

StackDump::~StackDump() {
    signal(SIGUSR2, SIG_IGN);  // a neighbour may still ask, which must not end this process
    [[maybe_unused]] const ssize_t ignored = write(requests_[1], &kEnd, 1);
    thread_.join();
    signal(visit_signal(), SIG_IGN);
    close(requests_[0]);
    close(requests_[1]);
}

void StackDump::serve() {
    char request = 0;
    while (read(requests_[0], &request, 1) == 1 || errno == EINTR) {
        if (request == kEnd) return;
        std::error_code ignored;
        fs::create_directories(file_.parent_path(), ignored);
        std::ofstream(file_, std::ios::app) << all_stacks();
    }
}

std::string StackDump::all_stacks() const {
    std::string text = fmt::format("{} process {}\n", wall_clock_text(), getpid());
    std::error_code error;
    for (const auto& item : fs::directory_iterator("/proc/self/task", error)) {
        const int thread = std::atoi(item.path().filename().c_str());
        if (thread == static_cast<int>(syscall(SYS_gettid))) continue;
        text += fmt::format("thread {} ({}{})\n{}", thread, first_line(item.path() / "comm"), thread == getpid() ? ", main" : "",
                            stack_of(thread));
    }
    return text + "\n";
}

NodeProcesses::NodeProcesses(Communicator& communicator) {
    const std::string prefix = host_name() + " ";
    for (const std::string& text : gather_texts(communicator, prefix + std::to_string(getpid()), "processes")) {
        if (text.starts_with(prefix)) pids_.push_back(std::atoi(text.c_str() + prefix.size()));
    }
}

void NodeProcesses::ask_for_stacks() const noexcept {
    const auto program_of = [](int pid) {
        std::error_code error;
        return fs::read_symlink(fmt::format("/proc/{}/exe", pid), error);
    };
    for (const int pid : pids_) {
        if (pid == getpid() || program_of(pid) == program_of(getpid())) kill(pid, SIGUSR2);
    }
}

}  // namespace lockstep
