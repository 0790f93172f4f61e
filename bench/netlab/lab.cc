#include "bench/netlab/lab.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"

namespace lockstep::netlab {

namespace {

constexpr int kTimeIsOver = 124;     // as `timeout` says it
constexpr int kPacketsPerTurn = 64;  // of one node, before the others get theirs
constexpr int64_t kLookEvery_ns = 50'000'000;
constexpr int64_t kGrace_ns = 2'000'000'000;  // between asking to end and killing

sigset_t lab_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&set, number);
    return set;
}

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

Lab::Lab(const LabOptions& options)
    : options_(options), switch_(options.node_count, options.link), nodes_(make_nodes(options.node_count)), packet_(kMtu) {
    const sigset_t set = lab_signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = FileHandle(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!signals_.is_open()) throw DeviceError(fmt::format("netlab: no signal descriptor: {}", std::strerror(errno)));
    prctl(PR_SET_TIMERSLACK, 1);       // ns: the kernel else bundles wake-ups within 50 us
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // a laboratory does not outlive whoever started it
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // grandchildren left behind come here
}

Lab::~Lab() { signal_all(SIGKILL); }

std::string Lab::directory() const {
    std::string text;
    for (const LabNode& node : nodes_) {
        text += fmt::format("{}{} /proc/{}/fd/{} /proc/{}/fd/{}", text.empty() ? "" : ";", node.address, getpid(),
                            node.network.get(), getpid(), node.uts.get());
    }
    return text;
}

void Lab::start(const std::string& name, int node, const std::function<int()>& body) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw DeviceError(fmt::format("netlab: no process for {}: {}", name, std::strerror(errno)));
    if (pid > 0) {
        children_.push_back({.name = name, .pid = pid});
        return;
    }
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    int code = 1;
    try {
        if (node >= 0) enter(nodes_[static_cast<size_t>(node)]);
        const sigset_t set = lab_signals();
        sigprocmask(SIG_UNBLOCK, &set, nullptr);
        code = body();
    } catch (const Error& error) {
        log::write_error(error.what());
        code = static_cast<int>(error.exit_code());
    }
    std::fflush(nullptr);
    _exit(code);
}

int Lab::run() {
    started_ns_ = now_ns();
    while (anything_runs()) {
        carry_packets();
        obey_signals();
        collect_children();
        check_times();
    }
    return verdict_;
}

bool Lab::anything_runs() const {
    return std::ranges::any_of(children_, [](const Child& child) { return child.running; });
}

// Waits for packets, for the time of one under way, or for a signal; then moves what can be moved.
void Lab::carry_packets() {
    std::vector<pollfd> polled;
    for (const LabNode& node : nodes_) polled.push_back({.fd = node.tun.get(), .events = POLLIN});
    polled.push_back({.fd = signals_.get(), .events = POLLIN});
    const int64_t wait_ns = std::clamp(switch_.next_event_ns() - now_ns(), int64_t{0}, kLookEvery_ns);
    const timespec wait{.tv_sec = 0, .tv_nsec = wait_ns};
    ppoll(polled.data(), polled.size(), &wait, nullptr);
    for (size_t node = 0; node < nodes_.size(); ++node) {
        if (polled[node].revents != 0) read_node(static_cast<int>(node));
    }
    switch_.deliver_due(now_ns(), [this](int destination, std::span<const std::byte> packet) {
        // A full device drops the packet, as a full port does; TCP sends it again.
        if (write(nodes_[static_cast<size_t>(destination)].tun.get(), packet.data(), packet.size()) < 0 && errno != EAGAIN) {
            throw DeviceError(fmt::format("netlab: node {} takes no packets: {}", destination, std::strerror(errno)));
        }
    });
}

void Lab::read_node(int node) {
    for (int count = 0; count < kPacketsPerTurn; ++count) {
        const ssize_t bytes = read(nodes_[static_cast<size_t>(node)].tun.get(), packet_.data(), packet_.size());
        if (bytes <= 0) return;
        const int destination = destination_of(packet_.data(), static_cast<size_t>(bytes), options_.node_count);
        if (destination < 0) continue;
        switch_.accept(node, destination, std::span(packet_).first(static_cast<size_t>(bytes)), now_ns());
    }
}

void Lab::obey_signals() {
    signalfd_siginfo info{};
    const int cut_node = options_.cut_node < 0 ? options_.node_count - 1 : options_.cut_node;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
        const int number = static_cast<int>(info.ssi_signo);
        if (number == SIGCHLD) continue;
        if (number == SIGUSR1 || number == SIGUSR2) {
            switch_.set_cut(cut_node, number == SIGUSR1);
            continue;
        }
        end_all(128 + number);
    }
}

void Lab::collect_children() {
    int status = 0;
    for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
        const auto child = std::ranges::find(children_, pid, &Child::pid);
        if (child == children_.end()) continue;  // a grandchild that was left behind
        child->running = false;
        kill(-pid, SIGKILL);  // what it may have left in its group
        const int code = exit_code_of(status);
        if (code == 0) continue;
        log::write_error(fmt::format("netlab: {} ended with {} after {:.1f} s", child->name, code,
                                     static_cast<double>(now_ns() - started_ns_) / 1e9));
        if (verdict_ == 0) verdict_ = code;
    }
}

void Lab::check_times() {
    const double elapsed_s = static_cast<double>(now_ns() - started_ns_) / 1e9;
    if (options_.cut_after_s > 0 && elapsed_s >= options_.cut_after_s && !cut_done_) {
        cut_done_ = true;
        switch_.set_cut(options_.cut_node < 0 ? options_.node_count - 1 : options_.cut_node, true);
    }
    if (kill_at_ns_ != 0 && now_ns() >= kill_at_ns_) signal_all(SIGKILL);
    if (elapsed_s < options_.limit_s || kill_at_ns_ != 0) return;
    log::write_error(fmt::format("netlab: not done after {} s; everything is ended (--limit-s)", options_.limit_s));
    end_all(kTimeIsOver);
}

void Lab::end_all(int verdict) {
    if (kill_at_ns_ != 0) return;
    verdict_ = verdict;
    kill_at_ns_ = now_ns() + kGrace_ns;
    signal_all(SIGTERM);
}

void Lab::signal_all(int number) {
    for (const Child& child : children_) {
        if (child.running) kill(-child.pid, number);
    }
}

std::vector<std::pair<std::string, std::string>> rank_environment(const std::vector<LabNode>& nodes, int ranks_per_node, int rank) {
    const int node = rank / ranks_per_node;
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(static_cast<int>(nodes.size()) * ranks_per_node)},
            {"LOCAL_RANK", std::to_string(rank % ranks_per_node)},
            {"LOCAL_WORLD_SIZE", std::to_string(ranks_per_node)},
            {"GROUP_RANK", std::to_string(node)},
            {"GROUP_WORLD_SIZE", std::to_string(nodes.size())},
            {"MASTER_ADDR", nodes.front().address},
            {"MASTER_PORT", "29500"},
            {"NETLAB_ADDRESS", nodes[static_cast<size_t>(node)].address},
            {"NETLAB_INTERFACE", kInterface}};
}

}  // namespace lockstep::netlab
