#include "launch/agent.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "launch/child_process.h"
#include "launch/line_splitter.h"
#include "launch/signal_reader.h"
#include "launch/verdict.h"
#include "net/open_files.h"
#include "net/store.h"

namespace lockstep {

namespace {

constexpr size_t kSpareFiles = 16;  // of the store, signals, and a start
constexpr size_t kKeptLines = 8;    // of each stream of a rank, for the closing lines
constexpr int64_t kDrainMs = 500;   // for output after the last rank has ended
constexpr std::array kHandledSignals{SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

std::string host_name() {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    return host.data();
}

// One whole line in one write wherever the system allows it. A screen that is gone is forgotten.
class Screen {
public:
    explicit Screen(int descriptor) : descriptor_(descriptor) {}

    void write_line(std::string line) {
        line += '\n';
        for (size_t sent = 0; !gone_ && sent < line.size();) {
            const ssize_t written = write(descriptor_, line.data() + sent, line.size() - sent);
            if (written >= 0) {
                sent += static_cast<size_t>(written);
            } else if (errno == EAGAIN) {
                pollfd ready{descriptor_, POLLOUT, 0};
                poll(&ready, 1, 1000);
            } else if (errno != EINTR) {
                gone_ = true;
            }
        }
    }

private:
    int descriptor_;
    bool gone_ = false;
};

// One output stream of one rank: to the screen with its number, to its log, and the last lines kept.
class RankStream {
public:
    RankStream(int rank, Pipe pipe, Screen& screen, const fs::path& log_path)
        : prefix_(fmt::format("[{}]: ", rank)), pipe_(std::move(pipe)), screen_(screen) {
        if (log_path.empty()) return;
        log_.open(log_path, std::ios::app);
        if (!log_) throw DeviceError(fmt::format("cannot write {}; choose another folder with --log-dir", log_path.string()));
    }

    const Pipe& pipe() const { return pipe_; }
    const std::deque<std::string>& last_lines() const { return last_lines_; }

    void forward_available() {
        std::array<char, 16 << 10> bytes{};
        for (int round = 0; round < 16 && pipe_.is_open(); ++round) {  // bounded: one noisy rank must not hide the others
            const ssize_t got = read(pipe_.descriptor(), bytes.data(), bytes.size());
            if (got > 0) {
                for (std::string& line : splitter_.add({bytes.data(), static_cast<size_t>(got)})) emit(std::move(line));
            } else if (got < 0 && errno == EAGAIN) {
                return;
            } else if (got == 0 || errno != EINTR) {
                close();
            }
        }
    }

    void close() {
        if (!pipe_.is_open()) return;
        pipe_.close();
        if (std::string rest = splitter_.rest(); !rest.empty()) emit(std::move(rest));
    }

private:
    void emit(std::string line) {
        screen_.write_line(prefix_ + line);
        if (log_.is_open()) log_ << line << std::endl;  // flushed: a log must be whole after a kill
        last_lines_.push_back(std::move(line));
        if (last_lines_.size() > kKeptLines) last_lines_.pop_front();
    }

    std::string prefix_;
    Pipe pipe_;
    Screen& screen_;
    LineSplitter splitter_;
    std::ofstream log_;
    std::deque<std::string> last_lines_;
};

struct Rank {
    RankEnd end;
    bool running = true;
    RankStream output, error;
};

class Agent {
public:
    explicit Agent(const AgentOptions& options) : options_(options), host_(host_name()) {}

    ~Agent() {  // after an exception too
        signal_all(SIGKILL);
        for (const auto& rank : ranks_) {
            if (rank->running) waitpid(rank->end.pid, nullptr, 0);
        }
    }

    int run() {
        make_room();
        start_store();
        for (int local_rank = 0; local_rank < options_.nproc_per_node; ++local_rank) start_rank(local_rank);
        while (any_running()) {
            wait_for_events(next_timeout_ms());
            handle_signals();
            reap();
            escalate();
        }
        drain();
        return close_down();
    }

private:
    // Two pipes and two logs per rank, a client of the store per rank of the job, and what is open for a moment at a start.
    void make_room() const {
        const auto here = static_cast<size_t>(options_.nproc_per_node);
        const size_t clients = options_.node_rank == 0 ? here * static_cast<size_t>(options_.node_count) : 0;
        reserve_open_files((options_.log_dir.empty() ? 2 : 4) * here + clients + kSpareFiles,
                           fmt::format("a launcher of {} ranks", options_.nproc_per_node));
    }

    void start_store() {
        const bool one_node = options_.node_count == 1;
        port_ = options_.master_port;
        job_id_ = one_node ? fmt::format("lockstep-{}-{}-{}", host_, getpid(), now_ns())
                           : fmt::format("lockstep-{}:{}", options_.master_addr, options_.master_port);
        if (options_.node_rank != 0) return;
        try {
            store_ = StoreServer::start({.bind_host = one_node ? "127.0.0.1" : "", .port = port_, .job_id = job_id_});
        } catch (const CommError& error) {
            throw DeviceError(fmt::format("--master-port {}: {}{}", port_, error.what(),
                                          one_node ? "; without --master-port a free one is taken" : ""));
        }
        port_ = store_->port();
    }

    std::vector<std::string> environment_of(int local_rank) const {
        const int rank = options_.node_rank * options_.nproc_per_node + local_rank;
        const auto text = [](int value) { return fmt::format("{}", value); };
        return environment_with({{"LOCKSTEP_RANK", text(rank)},
                                 {"LOCKSTEP_WORLD_SIZE", text(options_.node_count * options_.nproc_per_node)},
                                 {"LOCKSTEP_LOCAL_RANK", text(local_rank)},
                                 {"LOCKSTEP_LOCAL_WORLD_SIZE", text(options_.nproc_per_node)},
                                 {"LOCKSTEP_NODE_RANK", text(options_.node_rank)},
                                 {"LOCKSTEP_NODE_COUNT", text(options_.node_count)},
                                 {"LOCKSTEP_STORE_HOST", options_.node_count == 1 ? "127.0.0.1" : options_.master_addr},
                                 {"LOCKSTEP_STORE_PORT", text(port_)},
                                 {"LOCKSTEP_JOB_ID", job_id_}});
    }

    void start_rank(int local_rank) {
        const int rank = options_.node_rank * options_.nproc_per_node + local_rank;
        fs::path folder;
        if (!options_.log_dir.empty()) {
            folder = fs::path(options_.log_dir) / fmt::format("{}", rank);
            make_directories(folder);
        }
        const auto log = [&folder](const char* name) { return folder.empty() ? fs::path() : folder / name; };
        ChildProcess child = start_child(options_.command, environment_of(local_rank));
        const RankEnd end{.rank = rank, .host = host_, .pid = child.pid};
        ranks_.push_back(std::unique_ptr<Rank>(
            new Rank{end, true, RankStream(rank, std::move(child.standard_output), stdout_, log("stdout.log")),
                     RankStream(rank, std::move(child.standard_error), stderr_, log("stderr.log"))}));
    }

    bool any_running() const {
        return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->running; });
    }

    int next_timeout_ms() const {
        int64_t next_ns = std::numeric_limits<int64_t>::max();
        if (term_at_ns_) next_ns = std::min(next_ns, *term_at_ns_);
        if (kill_at_ns_) next_ns = std::min(next_ns, *kill_at_ns_);
        return static_cast<int>(std::clamp<int64_t>((next_ns - now_ns()) / 1'000'000 + 1, 0, 1000));
    }

    // Also forwards what the ranks wrote.
    void wait_for_events(int timeout_ms) {
        std::vector<pollfd> watched{{signals_.descriptor(), POLLIN, 0}};
        std::vector<RankStream*> streams;
        for (const auto& rank : ranks_) {
            for (RankStream* stream : {&rank->output, &rank->error}) {
                if (!stream->pipe().is_open()) continue;
                watched.push_back({stream->pipe().descriptor(), POLLIN, 0});
                streams.push_back(stream);
            }
        }
        if (poll(watched.data(), watched.size(), timeout_ms) <= 0) return;
        for (size_t index = 0; index < streams.size(); ++index) {
            if (watched[index + 1].revents != 0) streams[index]->forward_available();
        }
    }

    void handle_signals() {
        for (int signal = signals_.next(); signal != 0; signal = signals_.next()) {
            if (signal == SIGCHLD) continue;  // reap() looks at every rank anyway
            if (signal == SIGUSR1 || signal == SIGUSR2) {
                signal_all(signal);
            } else {
                stop_on_request(signal);
            }
        }
    }

    // INT: INT, TERM, KILL; TERM and HUP: the same signal, KILL. A second INT kills at once.
    void stop_on_request(int signal) {
        if (signal == SIGINT && request_ == SIGINT) {
            kill_at_ns_ = now_ns();
            return;
        }
        if (request_ == 0) request_ = signal;
        stopping_ = true;
        signal_all(signal);
        if (signal == SIGINT) plan_stop(2 * options_.grace_s, 4 * options_.grace_s);
        if (signal != SIGINT) plan_stop(std::nullopt, 4 * options_.grace_s);
    }

    void plan_stop(std::optional<double> term_after_s, double kill_after_s) {
        const auto after = [](double seconds) { return now_ns() + static_cast<int64_t>(1e9 * seconds); };
        if (term_after_s && !stopping_by_term_)
            term_at_ns_ = std::min(term_at_ns_.value_or(after(*term_after_s)), after(*term_after_s));
        kill_at_ns_ = std::min(kill_at_ns_.value_or(after(kill_after_s)), after(kill_after_s));
    }

    void escalate() {
        if (term_at_ns_ && now_ns() >= *term_at_ns_) {
            term_at_ns_.reset();
            stopping_ = stopping_by_term_ = true;
            signal_all(SIGTERM);
        }
        if (kill_at_ns_ && now_ns() >= *kill_at_ns_) {
            kill_at_ns_.reset();
            stopping_ = true;
            signal_all(SIGKILL);
        }
    }

    void signal_all(int signal) const {
        for (const auto& rank : ranks_) {
            if (rank->running) kill(-rank->end.pid, signal);
        }
    }

    void reap() {
        for (const auto& rank : ranks_) {
            siginfo_t info{};
            const auto id = static_cast<id_t>(rank->end.pid);
            if (!rank->running || waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
            kill(-rank->end.pid, SIGKILL);  // what it has left behind in its group, while the id cannot be reused
            waitpid(rank->end.pid, nullptr, 0);
            note_end(*rank, info);
        }
    }

    void note_end(Rank& rank, const siginfo_t& info) {
        rank.running = false;
        rank.end.ended_ns = now_ns();
        rank.end.stopped_by_agent = stopping_;
        if (info.si_code == CLD_EXITED) {
            rank.end.exit_code = info.si_status;
        } else {
            rank.end.signal = info.si_status;
            rank.end.core_dumped = info.si_code == CLD_DUMPED;
        }
        if (is_failure(rank.end) && !kill_at_ns_ && any_running()) {
            stderr_.write_line(fmt::format("lockstep run: rank {} ended: {}; the others have {:.1f} s to end by themselves",
                                           rank.end.rank, describe_end(rank.end), options_.grace_s));
        }
        if (!is_failure(rank.end)) return;
        plan_stop(options_.grace_s, 2 * options_.grace_s);
        // One that is stopped cannot end by itself; perhaps it was the cause. Awake, it meets the error that ended the others.
        signal_all(SIGCONT);
    }

    bool any_open_stream() const {
        return std::any_of(ranks_.begin(), ranks_.end(),
                           [](const auto& rank) { return rank->output.pipe().is_open() || rank->error.pipe().is_open(); });
    }

    // A process that left its group may hold a pipe open for ever: hence the deadline.
    void drain() {
        const Deadline deadline = Deadline::after_ms(kDrainMs);
        while (any_open_stream() && !deadline.expired()) wait_for_events(static_cast<int>(deadline.remaining_ms()) + 1);
        for (const auto& rank : ranks_) {
            rank->output.close();
            rank->error.close();
        }
    }

    int close_down() {
        std::vector<RankEnd> ends;
        for (const auto& rank : ranks_) {
            const auto& lines = rank->error.last_lines().empty() ? rank->output.last_lines() : rank->error.last_lines();
            rank->end.last_lines.assign(lines.begin(), lines.end());
            ends.push_back(rank->end);
        }
        const Verdict verdict = judge(ends, request_);
        if (verdict.first_failed >= 0) {
            for (std::string& line : closing_lines(ends, verdict)) stderr_.write_line(std::move(line));
        } else if (request_ != 0) {
            stderr_.write_line(
                fmt::format("lockstep run: stopped by SIG{}; exit code {}", sigabbrev_np(request_), verdict.exit_code));
        }
        return verdict.exit_code;
    }

    const AgentOptions& options_;
    const std::string host_;
    SignalReader signals_{kHandledSignals};  // before the store, whose thread inherits the blocked signals
    Screen stdout_{STDOUT_FILENO}, stderr_{STDERR_FILENO};
    std::unique_ptr<StoreServer> store_;
    int port_ = 0;
    std::string job_id_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    int request_ = 0;                // the first signal that asked for the end
    bool stopping_ = false;          // ranks that end from now on do so because of us
    bool stopping_by_term_ = false;  // TERM has been sent
    std::optional<int64_t> term_at_ns_, kill_at_ns_;
};

void check_options(const AgentOptions& options) {
    const auto require = [](bool fine, const std::string& text) {
        if (!fine) throw ConfigError(text);
    };
    require(options.nproc_per_node >= 1 && options.nproc_per_node <= 4096,
            fmt::format("--nproc-per-node {}: allowed: 1 to 4096", options.nproc_per_node));
    require(options.node_count >= 1, fmt::format("--nnodes {}: allowed: at least 1", options.node_count));
    require(options.node_rank >= 0 && options.node_rank < options.node_count,
            fmt::format("--node-rank {}: allowed: 0 to {}", options.node_rank, options.node_count - 1));
    require(options.master_port >= 0 && options.master_port <= 65535,
            fmt::format("--master-port {}: allowed: 1 to 65535", options.master_port));
    require(options.node_count == 1 || options.master_port > 0,
            "--nnodes above 1 needs --master-addr and --master-port, the same on all nodes");
    const bool loopback = options.master_addr == "localhost" || options.master_addr.starts_with("127.");
    require(
        options.node_count == 1 || !loopback,
        fmt::format("--master-addr {}: with several nodes it must be node 0's address as the others see it", options.master_addr));
    require(options.grace_s >= 0.0 && options.grace_s <= 86'400.0,
            fmt::format("--grace {}: allowed: 0 to 86400 s", options.grace_s));
    require(!options.command.empty(), "nothing to run; write the command after --, such as `-- train CONFIG`");
}

}  // namespace

int run_agent(const AgentOptions& options) {
    check_options(options);
    return Agent(options).run();
}

}  // namespace lockstep
