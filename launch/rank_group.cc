#include "launch/rank_group.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "launch/error_file.h"

namespace lockstep {

namespace {

constexpr int64_t kDrainMs = 500;   // for output after the last rank has ended
constexpr int64_t kKillMs = 5'000;  // for the kernel to end a rank

}  // namespace

RankGroup::~RankGroup() {
    signal_all(SIGKILL);
    // One that hangs in the system (a file server that is gone) dies when that lets go of it, or never: this launcher does not
    // wait.
    const Deadline deadline = Deadline::after_ms(kKillMs);
    for (const auto& rank : ranks_) {
        while (rank->running && waitpid(rank->end.pid, nullptr, WNOHANG) == 0 && !deadline.expired()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
}

void RankGroup::start_rank(const std::vector<std::string>& command, const RankPlan& plan) {
    auto rank = std::make_unique<Rank>();
    rank->end = {.rank = plan.rank, .host = host_, .log = plan.log_folder};
    rank->error_file = plan.error_file;
    try {
        ChildProcess child = start_child(command, plan.environment, plan.processors);
        rank->end.pid = child.pid;
        ranks_.push_back(std::move(rank));  // first: from here on it is ended with the others
        Rank& started = *ranks_.back();
        started.output = std::make_unique<RankStream>(std::move(child.standard_output), plan.output);
        started.error = std::make_unique<RankStream>(std::move(child.standard_error), plan.error);
    } catch (const Error& error) {
        if (rank == nullptr) throw;  // it runs, but its output cannot be kept
        rank->running = false;
        rank->end.exit_code = static_cast<int>(error.exit_code());
        rank->end.ended_ns = now_ns();
        rank->last_words = {error.what()};
        failed_starts_.push_back(rank->end);
        ranks_.push_back(std::move(rank));
    }
}

bool RankGroup::any_running() const {
    return std::ranges::any_of(ranks_, [](const auto& rank) { return rank->running; });
}

std::vector<RankStream*> RankGroup::streams() const {
    std::vector<RankStream*> open;
    for (const auto& rank : ranks_) {
        for (RankStream* stream : {rank->output.get(), rank->error.get()}) {
            if (stream != nullptr && stream->pipe().is_open()) open.push_back(stream);
        }
    }
    return open;
}

void RankGroup::append_to(std::vector<pollfd>& watched) const {
    for (const RankStream* stream : streams()) {
        if (stream->is_readable()) watched.push_back({stream->pipe().descriptor(), POLLIN, 0});
    }
}

void RankGroup::forward_output() {
    for (RankStream* stream : streams()) {
        if (stream->is_readable()) stream->forward_available();
    }
}

std::vector<RankEnd> RankGroup::reap() {
    std::vector<RankEnd> failures = std::exchange(failed_starts_, {});
    for (const auto& rank : ranks_) {
        siginfo_t info{};
        const auto id = static_cast<id_t>(rank->end.pid);
        if (!rank->running || waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
        kill(-rank->end.pid, SIGKILL);  // what it has left behind in its group, while the id cannot be reused
        waitpid(rank->end.pid, nullptr, 0);
        note_end(*rank, info.si_code, info.si_status);
        if (is_failure(rank->end)) failures.push_back(rank->end);
    }
    return failures;
}

void RankGroup::note_end(Rank& rank, int code, int status) const {
    rank.running = false;
    rank.end.ended_ns = now_ns();
    rank.end.stopped_by_agent = stopping_;
    if (code == CLD_EXITED) {
        rank.end.exit_code = status;
    } else {
        rank.end.signal = status;
        rank.end.core_dumped = code == CLD_DUMPED;
    }
    if (is_failure(rank.end)) rank.end.error = read_error_file(rank.error_file);
}

void RankGroup::signal_all(int number) const {
    for (const auto& rank : ranks_) {
        if (rank->running) kill(-rank->end.pid, number);
    }
}

void RankGroup::plan_stop(std::optional<double> term_after_s, double kill_after_s) {
    const auto after = [](double seconds) { return now_ns() + static_cast<int64_t>(1e9 * seconds); };
    if (term_after_s && !stopping_by_term_)
        term_at_ns_ = std::min(term_at_ns_.value_or(after(*term_after_s)), after(*term_after_s));
    kill_at_ns_ = std::min(kill_at_ns_.value_or(after(kill_after_s)), after(kill_after_s));
}

void RankGroup::kill_now() { kill_at_ns_ = now_ns(); }

void RankGroup::escalate() {
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

std::optional<int64_t> RankGroup::next_due_ns() const {
    if (term_at_ns_ && kill_at_ns_) return std::min(*term_at_ns_, *kill_at_ns_);
    return term_at_ns_ ? term_at_ns_ : kill_at_ns_;
}

void RankGroup::drain() {
    const Deadline deadline = Deadline::after_ms(kDrainMs);
    for (std::vector<RankStream*> open = streams(); !open.empty() && !deadline.expired(); open = streams()) {
        std::vector<pollfd> watched;
        for (const RankStream* stream : open) watched.push_back({stream->pipe().descriptor(), POLLIN, 0});
        poll(watched.data(), watched.size(), static_cast<int>(deadline.remaining_ms()) + 1);
        for (RankStream* stream : open) stream->forward_available();  // also when the screen is behind: last words are kept
    }
    for (RankStream* stream : streams()) stream->close();
}

std::vector<RankEnd> RankGroup::ends() const {
    std::vector<RankEnd> ends;
    for (const auto& rank : ranks_) {
        RankEnd& end = ends.emplace_back(rank->end);
        end.last_lines = rank->last_words;
        if (rank->error == nullptr) continue;
        const auto& lines = rank->error->last_lines().empty() ? rank->output->last_lines() : rank->error->last_lines();
        end.last_lines.assign(lines.begin(), lines.end());
        end.step = std::max(rank->output->last_step(), rank->error->last_step());
    }
    return ends;
}

}  // namespace lockstep
