#include "launch/agent.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/files.h"
#include "core/host.h"
#include "core/text.h"
#include "launch/rank_group.h"
#include "launch/rank_plans.h"
#include "launch/signal_reader.h"
#include "net/local_address.h"
#include "net/open_files.h"
#include "net/secrets.h"
#include "net/socket.h"

namespace lockstep {

namespace {

constexpr size_t kSpareFiles = 24;          // of the stores, signals, and a start
constexpr double kPatience_s = 2;           // a failed rank's peers have it to end by themselves, and again until KILL
constexpr double kHurriedPatience_s = 1;    // when they are to start again
constexpr double kMeetingPatience_s = 0.5;  // when they have not met yet: nothing is lost with them
constexpr double kFarewell_s = 2;           // without ranks, for the others' answer to a request to end
constexpr int64_t kScreenMs = 2'000;        // for the last lines, when the screen's reader stands still
constexpr double kSchedulerMargin_s = 2;    // before the scheduler's own KILL

std::string hex(std::string_view bytes) {
    std::string text;
    for (const char each : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(each));
    return text;
}

class Agent {
public:
    explicit Agent(const AgentOptions& options)
        : options_(options),
          identity_(hex(random_bytes(8))),
          made_up_id_(fmt::format("{}-{}", static_cast<int64_t>(wall_clock_s()), getpid())),
          host_(host_name()),
          signals_(with_child(options.signals)),
          own_secret_(job_secret_from_environment()),
          made_up_secret_(own_secret_.empty() && options.max_nodes == 1 ? hex(random_bytes(32)) : ""),
          plans_(options, made_up_secret_) {
        make_room();
    }

    int run() {
        join();
        while (!code_) {
            wait_for_events();
            obey_signals();
            watch_ranks();
            for (auto decision = link_->next(); decision && !code_; decision = link_->next()) obey(*decision);
            if (!code_ && link_->end()) face_the_end(*link_->end());
            if (farewell_at_ns_ && now_ns() >= *farewell_at_ns_ && !code_) code_ = judge({}, first_request_).exit_code;
        }
        group_.reset();
        link_->post({.kind = AgentEvent::Kind::left});
        link_->wait_until_sent(500);
        link_.reset();
        for (Screen* screen : screens()) screen->flush_within(kScreenMs);
        return *code_;
    }

private:
    static std::vector<int> with_child(std::vector<int> signals) {
        signals.insert(signals.end(), {SIGCHLD, SIGUSR1, SIGUSR2, SIGTSTP});
        return signals;
    }

    bool is_elastic() const { return options_.min_nodes != options_.max_nodes; }

    // Two pipes and two logs per rank, clients of the store (each rank, and each launcher three times), and what is open for a
    // moment at a start.
    void make_room() const {
        const auto here = static_cast<size_t>(options_.nproc_per_node);
        const size_t clients = options_.hosting == Hosting::never ? 0 : (here + 3) * static_cast<size_t>(options_.max_nodes);
        reserve_open_files((options_.log_dir.empty() ? 2 : 4) * here + clients + kSpareFiles,
                           fmt::format("a launcher of {} ranks", options_.nproc_per_node));
    }

    // A node that serves the run may reach itself by a loopback address (127.0.1.1 in /etc/hosts), which the others could not use.
    std::string address_for_other_nodes() const {
        World place{.node_count = options_.max_nodes};
        place.store_host = options_.endpoint_host;
        place.store_port = options_.endpoint_port;
        return local_addresses(place, "").front();
    }

    void join() {
        const std::string run_id = options_.run_id.empty() ? (options_.max_nodes == 1 ? made_up_id_ : "none") : options_.run_id;
        std::string address = options_.local_addr;
        if (address.empty()) address = options_.this_machine_only() ? "127.0.0.1" : address_for_other_nodes();
        link_ = std::make_unique<AgentLink>(
            // Every loopback address is this machine; the store listens on one.
            AgentLinkOptions{.host = is_loopback_name(options_.endpoint_host) ? "127.0.0.1" : options_.endpoint_host,
                             .port = options_.endpoint_port,
                             .port_option = options_.port_option,
                             .hosting = options_.hosting,
                             .this_machine_only = options_.this_machine_only(),
                             .run_id = run_id,
                             .secret = own_secret_.empty() ? made_up_secret_ : own_secret_,
                             .keep_alive_s = options_.keep_alive_s,
                             .coordination = {.min_nodes = options_.min_nodes,
                                              .max_nodes = options_.max_nodes,
                                              .max_restarts = options_.max_restarts,
                                              .own_program = options_.own_program,
                                              .run_name = options_.run_id.empty() ? made_up_id_ : options_.run_id,
                                              .token = hex(random_bytes(4)),
                                              .join_timeout_s = options_.join_timeout_s,
                                              .last_call_s = options_.last_call_s,
                                              .close_timeout_s = options_.close_timeout_s,
                                              .silent_after_s = options_.keep_alive_s * options_.keep_alive_misses},
                             .facts = {.identity = identity_,
                                       .host = host_,
                                       .pid = getpid(),
                                       .address = address,
                                       .free_port = bound_port(listen_on("", 0).get()),
                                       .local_size = options_.nproc_per_node,
                                       .node_rank = options_.node_rank,
                                       .restarts = restarts_}});
    }

    // Also forwards what the ranks wrote.
    void wait_for_events() {
        std::vector<pollfd> watched{{signals_.descriptor(), POLLIN, 0}, {link_->descriptor(), POLLIN, 0}};
        if (group_) group_->append_to(watched);
        for (const Screen* screen : screens()) screen->append_to(watched);
        int64_t timeout_ns = static_cast<int64_t>(1e9 * options_.monitor_interval_s);
        if (group_ && group_->next_due_ns()) timeout_ns = std::min(timeout_ns, *group_->next_due_ns() - now_ns());
        poll(watched.data(), watched.size(), static_cast<int>(std::max<int64_t>(timeout_ns, 0) / 1'000'000 + 1));
        for (Screen* screen : screens()) screen->flush();
        if (group_) group_->forward_output();
        for (const std::string& note : link_->take_notes()) say(note);
    }

    std::array<Screen*, 2> screens() { return {&plans_.output_screen(), &plans_.error_screen()}; }

    void say(const std::string& text) { plans_.error_screen().write_line("lockstep run: " + text); }

    void obey_signals() {
        for (int signal = signals_.next(); signal != 0; signal = signals_.next()) {
            if (signal == SIGCHLD) continue;  // watch_ranks() looks at every rank anyway
            if (signal == SIGTSTP) {
                suspend();
                continue;
            }
            if (signal == SIGUSR1 || signal == SIGUSR2) {
                if (group_) group_->signal_all(signal);
                continue;
            }
            ++told_[signal];
            link_->post({.kind = AgentEvent::Kind::requested, .signal = signal});
            pass_on(signal);
        }
    }

    // Ctrl-Z: the ranks, in groups of their own, would go on behind a launcher that reads no output.
    void suspend() {
        if (group_) group_->signal_all(SIGSTOP);
        std::raise(SIGSTOP);
        if (group_) group_->signal_all(SIGCONT);
    }

    // INT: INT, TERM, KILL; the others: the same signal, KILL. A second INT kills at once.
    void pass_on(int signal) {
        const bool again = signal == SIGINT && first_request_ == SIGINT;
        if (first_request_ == 0) first_request_ = signal;
        if (!group_ || !group_->any_running()) {
            if (!farewell_at_ns_) farewell_at_ns_ = now_ns() + static_cast<int64_t>(1e9 * kFarewell_s);
            return;
        }
        if (again) return group_->kill_now();
        const double grace_s = grace_until_the_scheduler_kills();
        group_->mark_stopping();
        group_->signal_all(signal);
        group_->plan_stop(signal == SIGINT ? std::optional(grace_s / 2) : std::nullopt, grace_s);
    }

    // Slurm says when the job's time is over.
    double grace_until_the_scheduler_kills() const {
        const char* end = std::getenv("SLURM_JOB_END_TIME");
        if (end == nullptr || std::atof(end) <= 0) return options_.grace_s;
        return std::clamp(std::atof(end) - wall_clock_s() - kSchedulerMargin_s, std::min(1.0, options_.grace_s), options_.grace_s);
    }

    double patience_s() const { return std::min(options_.grace_s, options_.max_restarts > 0 ? kHurriedPatience_s : kPatience_s); }

    void watch_ranks() {
        if (!group_ || reported_) return;
        const std::vector<RankEnd> failures = group_->reap();
        if (!failures.empty()) {
            if (!group_->next_due_ns() && group_->any_running()) {
                say(fmt::format("rank {} ended: {}; the others are to end too", failures.front().rank,
                                describe_end(failures.front())));
            }
            link_->post({.kind = AgentEvent::Kind::failed, .round = group_->round(), .ends = failures});
            end_group(patience_s());
        }
        group_->escalate();
        if (group_->any_running()) return;
        group_->drain();
        reported_ = true;
        last_ends_ = group_->ends();
        link_->post({.kind = AgentEvent::Kind::stopped, .round = group_->round(), .ends = last_ends_});
    }

    void end_group(double patience_s) {
        group_->plan_stop(patience_s, 2 * patience_s);
        // One that is stopped cannot end by itself; perhaps it was the cause. Awake, it meets the error that ended the others.
        group_->signal_all(SIGCONT);
    }

    void obey(const Decision& decision) {
        const bool of_group = group_ && !reported_ && group_->round() == decision.round;
        switch (decision.kind) {
            case Decision::Kind::start:
                return start_round(decision);
            case Decision::Kind::end:
                if (of_group) end_group(decision.at_work ? patience_s() : std::min(patience_s(), kMeetingPatience_s));
                return;
            case Decision::Kind::pause:
                if (!of_group) return;
                group_->mark_stopping();
                group_->signal_all(SIGUSR1);
                return group_->plan_stop(options_.grace_s, options_.grace_s + patience_s());
            case Decision::Kind::stop:
                if (told_[decision.signal] > 0) {  // this agent's own request comes back
                    --told_[decision.signal];
                } else {
                    pass_on(decision.signal);
                }
                return;
            case Decision::Kind::refuse:
                if (decision.agent == link_->number()) leave_with(decision.code, decision.lines);
                return;
            case Decision::Kind::call_back:
                if (decision.agent != link_->number()) return;
                group_.reset();
                return link_->join_again();
            case Decision::Kind::finish:
                return leave_with(decision.code, link_->is_host() ? decision.lines : summary_of(decision));
            case Decision::Kind::note:
                if (link_->is_host()) show(decision.lines);
                return;
        }
    }

    static std::vector<std::string> summary_of(const Decision& decision) {
        if (decision.code == 0) return {};
        return {fmt::format("lockstep run: the job has ended with exit code {}; the launcher of node 0 says why", decision.code)};
    }

    void show(const std::vector<std::string>& lines) {
        for (const std::string& line : lines) plans_.error_screen().write_line(line);
    }

    void leave_with(int code, const std::vector<std::string>& lines) {
        show(lines);
        code_ = code;
    }

    void start_round(const Decision& decision) {
        const auto mine = std::ranges::find(decision.members, identity_, &RoundMember::identity);
        if (mine == decision.members.end()) {
            group_.reset();  // this agent was thought lost
            return;
        }
        restarts_ = decision.restart_count;
        reported_ = false;
        group_ = std::make_unique<RankGroup>(host_, decision.round);
        if (is_elastic() || decision.round > 0) {
            const std::string text =
                fmt::format("round {}: {}, {}, restart {} of {}", decision.round, counted(std::ssize(decision.members), "node"),
                            counted(decision.world_size, "rank"), restarts_, options_.max_restarts);
            if (link_->is_host()) say(text);
        }
        for (int local_rank = 0; local_rank < options_.nproc_per_node; ++local_rank) {
            group_->start_rank(options_.command, plans_.plan(decision, *mine, local_rank, link_->store_port()));
        }
    }

    // The run is out of reach: first the ranks end, then this agent tries to join again, or leaves.
    void face_the_end(const AgentLink::End& end) {
        if (!told_end_) say(end.reason);
        told_end_ = true;
        if (group_ && !reported_) {
            if (!group_->next_due_ns()) end_group(patience_s());
            return;
        }
        const bool again =
            options_.max_nodes > 1 && !end.is_final && first_request_ == 0 && (is_elastic() || restarts_ < options_.max_restarts);
        if (!again) {
            const Verdict verdict = judge(last_ends_, first_request_);
            if (verdict.first_failed >= 0) show(closing_lines(last_ends_, verdict));
            code_ = end.is_final ? end.code : static_cast<int>(ExitCode::kPeerLost);
            return;
        }
        if (!is_elastic()) ++restarts_;
        say("trying to join the run again");
        told_end_ = false;
        group_.reset();
        link_.reset();
        join();
    }

    const AgentOptions& options_;
    const std::string identity_, made_up_id_, host_;
    SignalReader signals_;  // before the link, whose threads inherit the blocked signals
    const std::string own_secret_, made_up_secret_;
    RankPlans plans_;
    std::unique_ptr<AgentLink> link_;
    std::unique_ptr<RankGroup> group_;  // of the present round, or of the last
    bool reported_ = false;             // all its ranks have ended and the others know it
    std::vector<RankEnd> last_ends_;
    int restarts_ = 0;
    int first_request_ = 0;    // the first signal that asked for the end
    std::map<int, int> told_;  // requests of this agent that have not come back yet, by signal
    bool told_end_ = false;
    std::optional<int64_t> farewell_at_ns_;
    std::optional<int> code_;
};

void check_options(const AgentOptions& options) {
    const auto require = [](bool fine, const std::string& text) {
        if (!fine) throw ConfigError(text);
    };
    require(options.nproc_per_node >= 1 && options.nproc_per_node <= 4096,
            fmt::format("--nproc-per-node {}: allowed: 1 to 4096", options.nproc_per_node));
    require(options.min_nodes >= 1 && options.min_nodes <= options.max_nodes,
            fmt::format("--nnodes {}:{}: allowed: N or MIN:MAX, at least 1", options.min_nodes, options.max_nodes));
    require(options.node_rank < options.max_nodes,
            fmt::format("--node-rank {}: allowed: 0 to {}", options.node_rank, options.max_nodes - 1));
    require(options.endpoint_port >= 0 && options.endpoint_port <= 65535,
            fmt::format("{}: allowed: 1 to 65535", options.endpoint_port));
    require(options.max_nodes == 1 || options.endpoint_port > 0, "several nodes need a port that they all know");
    require(options.grace_s >= 0.0 && options.grace_s <= 86'400.0,
            fmt::format("--grace {}: allowed: 0 to 86400 s", options.grace_s));
    require(!options.command.empty(), "nothing to run; write the command after --, such as `-- train CONFIG`");
}

}  // namespace

bool AgentOptions::this_machine_only() const { return max_nodes == 1 || is_loopback_name(endpoint_host); }

std::vector<int> AgentOptions::default_signals() { return {SIGINT, SIGTERM, SIGHUP, SIGQUIT}; }

int run_agent(const AgentOptions& options) {
    check_options(options);
    return Agent(options).run();
}

}  // namespace lockstep
