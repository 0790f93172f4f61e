#include "bench/contestant_group.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep::bench {

namespace {

constexpr int64_t kLook_ms = 50;        // between looks at whether the processes live
constexpr int64_t kFarewell_ms = 3000;  // from hanging up to killing
constexpr size_t kKeptLetters = 2000;

std::string one_line(std::string text) {
    std::ranges::replace(text, '\n', ' ');
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
}

}  // namespace

ControlListener::ControlListener(const std::string& path)
    : handle_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    unlink(path.c_str());
    if (bind(handle_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(handle_.get(), 64) != 0) {
        throw DeviceError(fmt::format("cannot listen at {}: {}", path, std::strerror(errno)));
    }
}

FileHandle ControlListener::accept_one() const { return FileHandle(accept4(handle_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

ContestantGroup::ContestantGroup(const std::vector<Command>& commands, int number, int rank_count, const ControlListener& listener,
                                 double timeout_s)
    : timeout_s_(timeout_s), ranks_(static_cast<size_t>(rank_count)) {
    try {
        for (const Command& command : commands) {
            children_.push_back(start_child(command.words, environment_with(command.environment)));
        }
        accept_ranks(listener, number);
    } catch (...) {
        end();
        throw;
    }
}

void ContestantGroup::end() noexcept {
    ranks_.clear();
    const Deadline deadline = Deadline::after_ms(kFarewell_ms);
    for (const ChildProcess& child : children_) {
        int status = 0;
        while (waitpid(child.pid, &status, WNOHANG) == 0) {
            if (deadline.expired()) kill(-child.pid, SIGKILL);
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        kill(-child.pid, SIGKILL);  // what the launcher may have left behind
    }
    children_.clear();
}

void ContestantGroup::accept_ranks(const ControlListener& listener, int number) {
    const Deadline deadline = Deadline::after_ms(static_cast<int64_t>(1e3 * timeout_s_));
    for (size_t arrived = 0; arrived < ranks_.size();) {
        Rank rank{.socket = listener.accept_one()};
        if (!rank.socket.is_open()) {
            if (deadline.expired()) fail(fmt::format("only {} of {} ranks came within {} s", arrived, ranks_.size(), timeout_s_));
            listen_for(listener.descriptor(), kLook_ms);
            check_alive();
            continue;
        }
        const Hello hello = Hello::from_json(read_line(rank, deadline, "a rank's first words"));
        if (hello.number != number) continue;  // late, of a contestant that was given up
        version_ = hello.version;
        ranks_.at(static_cast<size_t>(hello.rank)) = std::move(rank);
        ++arrived;
    }
}

TurnOutcome ContestantGroup::take_turn(const Turn& turn) {
    const std::string line = turn.to_json() + "\n";
    for (const Rank& rank : ranks_) {
        if (send(rank.socket.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
            fail("a rank does not listen any more");
        }
    }
    TurnOutcome outcome{.us = std::vector<double>(static_cast<size_t>(turn.iterations), 0.0)};
    const Deadline deadline = Deadline::after_ms(static_cast<int64_t>(1e3 * timeout_s_));
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const TurnResult result =
            TurnResult::from_json(read_line(ranks_[rank], deadline, fmt::format("the times of rank {}", rank)));
        if (!result.wrong.empty()) fail(fmt::format("wrong sum on rank {}: {}", rank, result.wrong));
        for (size_t call = 0; call < outcome.us.size(); ++call) outcome.us[call] = std::max(outcome.us[call], result.us.at(call));
        outcome.cpu_s += result.cpu_s;
        outcome.link_bytes += result.link_bytes;
    }
    return outcome;
}

std::string ContestantGroup::Rank::take_line() {
    const size_t end = received.find('\n');
    if (end == std::string::npos) return {};
    std::string line = received.substr(0, end);
    received.erase(0, end + 1);
    return line;
}

std::string ContestantGroup::read_line(Rank& rank, const Deadline& deadline, const std::string& what) {
    std::string line = rank.take_line();
    while (line.empty()) {
        char piece[1 << 16];
        const ssize_t bytes = recv(rank.socket.get(), piece, sizeof piece, MSG_DONTWAIT);
        if (bytes == 0) {
            listen_for(-1, kLook_ms);
            fail(fmt::format("a process ended instead of sending {}", what));
        }
        if (bytes < 0) {
            if (deadline.expired()) fail(fmt::format("{} did not come within {} s", what, timeout_s_));
            listen_for(rank.socket.get(), deadline.remaining_ms());
            continue;
        }
        rank.received.append(piece, static_cast<size_t>(bytes));
        line = rank.take_line();
    }
    return line;
}

// Wakes up only when there is something to hear, so a turn is not disturbed.
void ContestantGroup::listen_for(int descriptor, int64_t wait_ms) {
    std::vector<pollfd> polled{{.fd = descriptor, .events = POLLIN}};
    std::vector<Pipe*> pipes;
    for (ChildProcess& child : children_) {
        for (Pipe* pipe : {&child.standard_output, &child.standard_error}) {
            if (!pipe->is_open()) continue;
            pipes.push_back(pipe);
            polled.push_back({.fd = pipe->descriptor(), .events = POLLIN});
        }
    }
    poll(polled.data(), polled.size(), static_cast<int>(wait_ms));
    for (size_t index = 0; index < pipes.size(); ++index) {
        if (polled[index + 1].revents == 0) continue;
        char piece[4096];
        const ssize_t bytes = read(pipes[index]->descriptor(), piece, sizeof piece);
        if (bytes > 0) printed_.append(piece, static_cast<size_t>(bytes));
        if (bytes == 0) pipes[index]->close();
    }
    if (printed_.size() > kKeptLetters) printed_.erase(0, printed_.size() - kKeptLetters);
}

void ContestantGroup::check_alive() {
    for (const ChildProcess& child : children_) {
        siginfo_t info{};
        if (waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child.pid) {
            listen_for(-1, 0);
            fail(fmt::format("a process ended ({} {})", info.si_code == CLD_EXITED ? "code" : "signal", info.si_status));
        }
    }
}

void ContestantGroup::fail(const std::string& what) {
    const std::string said = one_line(printed_);
    throw CommError(said.empty() ? what : fmt::format("{}; it printed: {}", what, said));
}

}  // namespace lockstep::bench
