#include "launch/coordinator_service.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "launch/rendezvous.h"

namespace lockstep {

namespace {

constexpr int64_t kLookMs = 50;           // the longest it waits for an event before it looks at the clock
constexpr double kWorthAWordClock_s = 2;  // of difference between two nodes' clocks

}  // namespace

CoordinatorService::CoordinatorService(const CoordinatorOptions& options, double keep_alive_s, StoreServer& server,
                                       std::unique_ptr<Store> store)
    : awake_(static_cast<int64_t>(1e8 * options.silent_after_s)),
      coordinator_(options, awake_.read()),
      own_program_(options.own_program),
      keep_alive_ns_(static_cast<int64_t>(1e9 * keep_alive_s)),
      server_(server),
      store_(std::move(store)),
      thread_([this] { work(); }) {}

CoordinatorService::~CoordinatorService() {
    stopping_ = true;
    thread_.join();
}

void CoordinatorService::work() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    try {
        while (!stopping_) {
            hear_next_event();
            if (now_ns() >= next_look_ns_) look_for_beats();
            coordinator_.look_at_the_clock(awake_.read());
            write_decisions();
        }
    } catch (const CommError&) {  // its own store, in its own process: only when that is at its end
    }
}

void CoordinatorService::hear_next_event() {
    const std::string key = list_key(kEventList, next_event_);
    std::string bytes;
    try {
        bytes = store_->wait(key, kLookMs);
    } catch (const CommError&) {
        if (!store_->get(key)) return;
        bytes = *store_->get(key);
    }
    const int64_t number = next_event_++;
    const std::optional<AgentEvent> event = decode_event(bytes);
    if (!event) return;
    const int64_t left_out_before_ns = awake_.left_out_ns();
    const int64_t heard_ns = awake_.read();
    // What lay here while this process was stopped tells an old time.
    if (event->kind == AgentEvent::Kind::joined && awake_.left_out_ns() == left_out_before_ns) warn_of_clock(event->facts);
    coordinator_.hear(*event, number, heard_ns);
}

void CoordinatorService::look_for_beats() {
    next_look_ns_ = now_ns() + keep_alive_ns_ / 2;
    for (const int64_t agent : coordinator_.agents_to_hear()) {
        const std::string beat = store_->get(beat_key(agent)).value_or("");
        if (beat == beats_[agent]) continue;
        beats_[agent] = beat;
        coordinator_.hear_beat(agent, awake_.read());
    }
}

void CoordinatorService::write_decisions() {
    for (Decision& decision : coordinator_.take_decisions()) {
        if (decision.kind == Decision::Kind::start) {
            if (!open_job_.empty()) server_.close_table(open_job_);
            open_job_ = decision.job_id;
            server_.open_table(open_job_);
        }
        decision.at_work = !own_program_ || server_.holds(open_job_, kAtWorkKey);
        store_->append(kDecisionList, encode(decision));
    }
}

void CoordinatorService::warn_of_clock(const AgentFacts& facts) {
    const double ahead_s = facts.clock_s - wall_clock_s();
    if (std::abs(ahead_s) < kWorthAWordClock_s) return;
    const Decision note{
        .kind = Decision::Kind::note,
        .lines = {fmt::format("lockstep run: warning: the clock of {} is {:.1f} s {}; times in logs will not agree; "
                              "set the clocks (NTP)",
                              facts.host, std::abs(ahead_s), ahead_s > 0 ? "ahead" : "behind")}};
    store_->append(kDecisionList, encode(note));
}

}  // namespace lockstep
