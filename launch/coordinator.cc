#include "launch/coordinator.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace lockstep {

namespace {

int64_t after(int64_t now_ns, double seconds) { return now_ns + static_cast<int64_t>(1e9 * seconds); }

std::string nodes_text(int count) { return fmt::format("{} node{}", count, count == 1 ? "" : "s"); }

bool follows_a_loss(const RankEnd& end) { return end.signal == 0 && end.exit_code == static_cast<int>(ExitCode::kPeerLost); }

}  // namespace

bool restarts_help(const RankEnd& cause, bool own_program) {
    if (cause.signal != 0) return true;
    switch (static_cast<ExitCode>(cause.exit_code)) {
        case ExitCode::kDone:
        case ExitCode::kConfig:
        case ExitCode::kData:
        case ExitCode::kDiverged:
        case ExitCode::kInterrupted:
        case ExitCode::kRequeue:
            return false;
        case ExitCode::kInternal:
            return !own_program;
        default:
            return true;
    }
}

Coordinator::Coordinator(const CoordinatorOptions& options, int64_t now_ns) : options_(options) { begin_gathering(now_ns, true); }

std::vector<Decision> Coordinator::take_decisions() { return std::exchange(decisions_, {}); }

std::vector<int64_t> Coordinator::present_agents() const {
    std::vector<int64_t> numbers;
    for (const auto& [number, agent] : agents_) {
        if (agent.present) numbers.push_back(number);
    }
    return numbers;
}

std::vector<int64_t> Coordinator::agents_to_hear() const {
    std::vector<int64_t> numbers = present_agents();
    numbers.insert(numbers.end(), dropped_.begin(), dropped_.end());
    return numbers;
}

int Coordinator::present_count() const { return static_cast<int>(present_agents().size()); }

void Coordinator::note(std::string text) {
    decisions_.push_back({.kind = Decision::Kind::note, .round = round_, .lines = {"lockstep run: " + std::move(text)}});
}

void Coordinator::hear(const AgentEvent& event, int64_t number, int64_t now_ns) {
    if (event.kind == AgentEvent::Kind::joined) return add(event, number, now_ns);
    const auto found = agents_.find(event.agent);
    if (found == agents_.end() || !found->second.present) {
        const bool has_gone = event.kind == AgentEvent::Kind::left || event.kind == AgentEvent::Kind::gone;
        return has_gone ? static_cast<void>(dropped_.erase(event.agent)) : call_back(event.agent);
    }
    Agent& agent = found->second;
    agent.last_sign_ns = now_ns;
    switch (event.kind) {
        case AgentEvent::Kind::failed:
        case AgentEvent::Kind::stopped:
            if (event.round == round_ && agent.in_round) hear_failure(agent, event, now_ns);
            break;
        case AgentEvent::Kind::requested:
            hear_request(event, now_ns);
            break;
        case AgentEvent::Kind::left:
            agents_.erase(found);
            break;
        case AgentEvent::Kind::gone:
            lose(event.agent, "its process has ended or cannot be reached", now_ns);
            break;
        case AgentEvent::Kind::joined:
            break;
    }
}

void Coordinator::hear_beat(int64_t agent, int64_t now_ns) {
    const auto found = agents_.find(agent);
    if (found == agents_.end() || !found->second.present) return call_back(agent);
    found->second.last_sign_ns = now_ns;
}

// It was stopped, or its link was, for longer than is waited for; its place may have been given away, so it comes as a new one.
void Coordinator::call_back(int64_t agent) {
    if (dropped_.erase(agent) == 0) return;
    decisions_.push_back({.kind = Decision::Kind::call_back, .round = round_, .agent = agent});
}

void Coordinator::drop(int64_t number, const std::string& how, int64_t now_ns) {
    dropped_.insert(number);
    lose(number, how, now_ns);
}

// Why an agent cannot take part; empty: it can.
std::string Coordinator::why_not(const AgentFacts& facts) const {
    if (phase_ == Phase::finished) return "the job is over";
    if (facts.node_rank >= options_.max_nodes) {
        return fmt::format("--node-rank {} on {}: allowed: 0 to {}", facts.node_rank, facts.host, options_.max_nodes - 1);
    }
    for (const auto& [number, agent] : agents_) {
        if (facts.node_rank < 0 || !agent.present || agent.facts.node_rank != facts.node_rank) continue;
        return fmt::format("--node-rank {} is doubled: {} pid {} and {} pid {} both say so; give each node its own",
                           facts.node_rank, agent.facts.host, agent.facts.pid, facts.host, facts.pid);
    }
    return {};
}

void Coordinator::add(const AgentEvent& event, int64_t number, int64_t now_ns) {
    for (const int64_t other : present_agents()) {
        if (agents_.at(other).facts.identity == event.facts.identity)
            lose(other, "it has come back under a new connection", now_ns);
    }
    if (const std::string reason = why_not(event.facts); !reason.empty()) {
        decisions_.push_back({.kind = Decision::Kind::refuse,
                              .round = round_,
                              .agent = number,
                              .code = static_cast<int>(ExitCode::kConfig),
                              .lines = {reason}});
        return;
    }
    agents_[number] = {.facts = event.facts, .last_sign_ns = now_ns};
    restarts_ = std::max(restarts_, event.facts.restarts);
    if (phase_ == Phase::gathering && options_.max_nodes > 1) {
        note(fmt::format(
            "{} pid {} is here, {} of {} now", event.facts.host, event.facts.pid, present_count(),
            is_elastic() ? fmt::format("{} to {} nodes", options_.min_nodes, options_.max_nodes) : nodes_text(options_.max_nodes)));
    }
    if (phase_ == Phase::gathering || phase_ == Phase::ending) return;
    const auto members = std::ranges::count_if(agents_, [](const auto& entry) { return entry.second.in_round; });
    if (members < options_.max_nodes) {
        pause_at_ns_ = after(now_ns, options_.settle_s);
    } else {
        note(fmt::format("{} pid {} has come, but {} are at work already: it waits in reserve", event.facts.host, event.facts.pid,
                         nodes_text(options_.max_nodes)));
    }
}

void Coordinator::lose(int64_t number, const std::string& how, int64_t now_ns) {
    Agent& agent = agents_.at(number);
    if (!agent.in_round || phase_ == Phase::gathering) {
        agents_.erase(number);
        return;
    }
    agent.present = false;
    if (std::exchange(agent.reported, true)) return;  // how its ranks ended still counts
    lost_.push_back(fmt::format("the agent on {} (pid {}, {} rank{}) is lost: {}", agent.facts.host, agent.facts.pid,
                                agent.facts.local_size, agent.facts.local_size == 1 ? "" : "s", how));
    note(lost_.back());
    if (phase_ == Phase::running) end_round(Decision::Kind::end, now_ns);
    close_round_if_complete(now_ns);
}

void Coordinator::hear_failure(Agent& agent, const AgentEvent& event, int64_t now_ns) {
    agent.ends = event.ends;
    agent.reported = agent.reported || event.kind == AgentEvent::Kind::stopped;
    const bool failed = std::ranges::any_of(event.ends, is_failure);
    if (failed && (phase_ == Phase::running || std::exchange(member_changed_, false))) end_round(Decision::Kind::end, now_ns);
    close_round_if_complete(now_ns);
}

void Coordinator::hear_request(const AgentEvent& event, int64_t now_ns) {
    if (request_ == 0) request_ = event.signal;
    if (phase_ == Phase::gathering) return finish(judge({}, request_).exit_code, {});
    if (phase_ == Phase::running) phase_ = Phase::ending;
    member_changed_ = false;
    reports_due_ns_ = 0;  // the agents themselves end what does not end in time
    decisions_.push_back({.kind = Decision::Kind::stop, .round = round_, .signal = event.signal});
    close_round_if_complete(now_ns);
}

void Coordinator::look_at_the_clock(int64_t now_ns) {
    for (const int64_t number : present_agents()) {
        if (now_ns < after(agents_.at(number).last_sign_ns, options_.silent_after_s)) continue;
        drop(number, fmt::format("no sign of life for {:.1f} s", options_.silent_after_s), now_ns);
    }
    if (phase_ == Phase::running && pause_at_ns_ != 0 && now_ns >= pause_at_ns_) {
        note(fmt::format("{} now: the ranks are asked for a checkpoint and start again on all of them",
                         nodes_text(present_count())));
        end_round(Decision::Kind::pause, now_ns);
    }
    if (phase_ == Phase::ending && reports_due_ns_ != 0 && now_ns >= reports_due_ns_) {
        for (const int64_t number : present_agents()) {
            if (phase_ != Phase::ending || reports_due_ns_ == 0) break;  // the last loss has closed the round
            const Agent& agent = agents_.at(number);
            if (agent.in_round && !agent.reported) drop(number, "it does not report the end of its ranks", now_ns);
        }
    }
    if (phase_ != Phase::gathering) return;
    const int present = present_count();
    if (present < options_.min_nodes) {
        last_call_ns_ = 0;
        if (now_ns < give_up_ns_) return;
        std::vector<std::string> hosts;
        for (const auto& [number, agent] : agents_) hosts.push_back(agent.facts.host);
        return finish(static_cast<int>(ExitCode::kPeerLost),
                      {fmt::format("only {} of {} came within {:.0f} s ({}); start the others, or allow more time with --rdzv-conf "
                                   "join_timeout=S",
                                   present, nodes_text(options_.min_nodes), options_.join_timeout_s, fmt::join(hosts, ", "))});
    }
    if (last_call_ns_ == 0) last_call_ns_ = wants_last_call_ ? after(now_ns, options_.last_call_s) : now_ns;
    if (present >= options_.max_nodes || now_ns >= last_call_ns_) start_round(now_ns);
}

void Coordinator::begin_gathering(int64_t now_ns, bool last_call) {
    phase_ = Phase::gathering;
    wants_last_call_ = last_call;
    last_call_ns_ = reports_due_ns_ = 0;
    give_up_ns_ = after(now_ns, options_.join_timeout_s);
}

// By the number the user gave, then in the order of their coming.
std::vector<int64_t> Coordinator::next_members() const {
    std::vector<int64_t> numbers = present_agents();
    const auto place = [this](int64_t number) {
        const int given = agents_.at(number).facts.node_rank;
        return std::pair(given < 0 ? options_.max_nodes : given, number);
    };
    std::ranges::sort(numbers, {}, place);
    if (numbers.size() > static_cast<size_t>(options_.max_nodes)) numbers.resize(static_cast<size_t>(options_.max_nodes));
    return numbers;
}

void Coordinator::start_round(int64_t now_ns) {
    phase_ = Phase::running;
    ++round_;
    lost_.clear();
    member_changed_ = false;
    pause_at_ns_ = reports_due_ns_ = 0;
    for (auto& [number, agent] : agents_) agent.in_round = agent.reported = false;
    Decision start{.kind = Decision::Kind::start,
                   .round = round_,
                   .job_id = fmt::format("{}-{}-{}", options_.run_name, options_.token, round_),
                   .run_name = options_.run_name,
                   .restart_count = restarts_};
    for (const int64_t number : next_members()) {
        Agent& agent = agents_.at(number);
        agent.in_round = true;
        agent.ends.clear();
        agent.last_sign_ns = now_ns;
        start.members.push_back({.identity = agent.facts.identity,
                                 .node = static_cast<int>(start.members.size()),
                                 .first_rank = start.world_size,
                                 .local_size = agent.facts.local_size,
                                 .host = agent.facts.host});
        start.world_size += agent.facts.local_size;
        if (start.members.size() > 1) continue;
        start.master_addr = agent.facts.address;
        start.master_port = agent.facts.free_port;
    }
    decisions_.push_back(std::move(start));
}

void Coordinator::end_round(Decision::Kind how, int64_t now_ns) {
    phase_ = Phase::ending;
    pause_at_ns_ = 0;
    member_changed_ = how == Decision::Kind::pause;
    reports_due_ns_ = member_changed_ ? 0 : after(now_ns, options_.close_timeout_s);
    decisions_.push_back({.kind = how, .round = round_});
}

void Coordinator::close_round_if_complete(int64_t now_ns) {
    if (phase_ != Phase::running && phase_ != Phase::ending) return;
    for (const auto& [number, agent] : agents_) {
        if (agent.in_round && !agent.reported) return;
    }
    close_round(now_ns);
}

void Coordinator::close_round(int64_t now_ns) {
    std::vector<RankEnd> ends;
    for (const auto& [number, agent] : agents_) {
        if (agent.in_round) ends.insert(ends.end(), agent.ends.begin(), agent.ends.end());
    }
    std::ranges::sort(ends, {}, &RankEnd::rank);
    std::erase_if(agents_, [](const auto& entry) { return !entry.second.present; });
    const Verdict verdict = judge(ends, request_);
    if (start_over(verdict, ends, now_ns)) return;
    if (verdict.first_failed >= 0) return finish(verdict.exit_code, closing_lines(ends, verdict));
    if (request_ == 0 && !lost_.empty()) return finish(static_cast<int>(ExitCode::kPeerLost), {lost_.front()});
    std::vector<std::string> lines;
    if (request_ != 0) lines = {fmt::format("stopped by SIG{}; exit code {}", sigabbrev_np(request_), verdict.exit_code)};
    const bool all_done = std::ranges::all_of(ends, [](const RankEnd& end) { return end.signal == 0 && end.exit_code == 0; });
    const bool stopped_for_nothing = verdict.exit_code == 0 && !all_done;  // never call that a success
    finish(stopped_for_nothing ? static_cast<int>(ExitCode::kPeerLost) : verdict.exit_code, std::move(lines));
}

bool Coordinator::start_over(const Verdict& verdict, const std::vector<RankEnd>& ends, int64_t now_ns) {
    if (request_ != 0) return false;
    const RankEnd* cause = verdict.first_failed < 0 ? nullptr : &ends[static_cast<size_t>(verdict.first_failed)];
    const bool agent_lost = !lost_.empty() && (cause == nullptr || follows_a_loss(*cause));
    const bool all_done =
        !ends.empty() && std::ranges::all_of(ends, [](const RankEnd& end) { return end.signal == 0 && end.exit_code == 0; });
    if (cause == nullptr && !agent_lost && (all_done || !member_changed_)) return false;
    if (agent_lost ? !is_elastic() : cause != nullptr) {
        if (restarts_ >= options_.max_restarts || (!agent_lost && !restarts_help(*cause, options_.own_program))) return false;
        ++restarts_;
        if (!agent_lost) {
            for (std::string& line : closing_lines(ends, verdict)) {
                decisions_.push_back({.kind = Decision::Kind::note, .round = round_, .lines = {std::move(line)}});
            }
        }
        note(fmt::format("starting again, restart {} of {}", restarts_, options_.max_restarts));
    }
    begin_gathering(now_ns, false);
    look_at_the_clock(now_ns);
    return true;
}

void Coordinator::finish(int code, std::vector<std::string> lines) {
    phase_ = Phase::finished;
    decisions_.push_back({.kind = Decision::Kind::finish, .round = round_, .code = code, .lines = std::move(lines)});
}

}  // namespace lockstep
