#include "launch/agent_link.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "launch/coordinator_service.h"
#include "net/local_address.h"
#include "net/socket.h"

namespace lockstep {

namespace {

constexpr int64_t kAttemptMs = 1000;   // one try to join
constexpr int64_t kPauseMs = 200;      // between two tries
constexpr int64_t kQuietMs = 5'000;    // without success: then it says that it still tries
constexpr int64_t kRequestMs = 5'000;  // for the store's answer
constexpr int64_t kFollowMs = 1000;    // one wait for a decision

void block_signals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

AgentLink::AgentLink(const AgentLinkOptions& options)
    : options_(options), ready_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), port_(options.port) {
    if (!ready_.is_open()) {
        throw DeviceError(fmt::format("no event descriptor for the launcher: {}; raise the limit of open files (ulimit -n)",
                                      std::strerror(errno)));
    }
    receiver_ = std::thread([this] { guard(&AgentLink::receive); });
}

AgentLink::~AgentLink() {
    {
        const std::lock_guard lock(mutex_);
        leaving_ = true;
    }
    changed_.notify_all();
    receiver_.join();
    if (sender_.joinable()) sender_.join();
    store_.reset();
    if (server_ == nullptr) return;
    service_.reset();
    server_->wait_until_left(static_cast<int64_t>(1000 * options_.coordination.close_timeout_s));
}

std::optional<Decision> AgentLink::next() {
    uint64_t ignored = 0;
    if (read(ready_.descriptor(), &ignored, sizeof ignored) < 0 && errno != EAGAIN) return std::nullopt;
    const std::lock_guard lock(mutex_);
    if (incoming_.empty()) return std::nullopt;
    Decision decision = std::move(incoming_.front());
    incoming_.pop_front();
    return decision;
}

std::optional<AgentLink::End> AgentLink::end() const {
    const std::lock_guard lock(mutex_);
    return incoming_.empty() ? end_ : std::nullopt;
}

void AgentLink::post(AgentEvent event) {
    const std::lock_guard lock(mutex_);
    outgoing_.push_back(std::move(event));
    changed_.notify_all();
}

void AgentLink::join_again() { post({.kind = AgentEvent::Kind::joined, .facts = options_.facts}); }

bool AgentLink::wait_until_sent(int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return (outgoing_.empty() && !sending_) || end_; });
}

std::vector<std::string> AgentLink::take_notes() {
    look_for_strangers();
    const std::lock_guard lock(mutex_);
    return std::exchange(notes_, {});
}

void AgentLink::look_for_strangers() {
    if (!is_host_ || told_strangers_) return;
    const StoreStrangers strangers = server_->strangers();
    if (strangers.count == 0) return;
    told_strangers_ = true;
    tell(fmt::format("a stranger was turned away ({}); further ones are not told", strangers.first));
}

void AgentLink::tell(std::string note) {
    {
        const std::lock_guard lock(mutex_);
        notes_.push_back(std::move(note));
    }
    signal_ready();
}

void AgentLink::signal_ready() {
    const uint64_t one = 1;
    check(write(ready_.descriptor(), &one, sizeof one) == sizeof one, "eventfd takes one number");
}

void AgentLink::end_with(End end) {
    {
        const std::lock_guard lock(mutex_);
        if (!end_) end_ = std::move(end);
    }
    changed_.notify_all();
    signal_ready();
}

// What ends a thread ends the link, with the reason, and never the process: the ranks are then ended in order.
void AgentLink::guard(void (AgentLink::*work)()) {
    block_signals();
    try {
        (this->*work)();
    } catch (const StoreRefused& error) {
        end_with({.reason = error.what(), .is_final = true, .code = static_cast<int>(ExitCode::kConfig)});
    } catch (const CommError& error) {
        end_with({.reason = error.what()});
    } catch (const Error& error) {
        end_with({.reason = error.what(), .is_final = true, .code = static_cast<int>(error.exit_code())});
    } catch (const std::exception& error) {  // no memory, no thread
        end_with({.reason = fmt::format("the launcher cannot go on: {}; check memory and the limits of processes (ulimit -a)",
                                        error.what()),
                  .is_final = true,
                  .code = static_cast<int>(ExitCode::kEnvironment)});
    }
}

void AgentLink::receive() {
    const Deadline deadline = Deadline::after_ms(static_cast<int64_t>(1000 * options_.coordination.join_timeout_s));
    const Deadline quiet = Deadline::after_ms(kQuietMs);
    std::string reason;
    for (bool told = false; !try_to_join(reason);) {
        if (leaving_) return;
        if (!told && quiet.expired()) {
            told = true;
            tell(fmt::format("cannot join the run at {} yet ({}); trying for up to {:.0f} s", endpoint_text(options_.host, port_),
                             reason, options_.coordination.join_timeout_s));
        }
        if (deadline.expired()) {
            return end_with(
                {.reason = fmt::format("cannot join the run at {} within {:.0f} s: {}", endpoint_text(options_.host, port_),
                                       options_.coordination.join_timeout_s, reason),
                 .is_final = true,
                 .code = static_cast<int>(ExitCode::kPeerLost)});
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
    }
    sender_ = std::thread([this] { guard(&AgentLink::send); });
    follow_decisions();
}

// Serves the store where it may and nobody does yet; then enters. False, with a reason: not now.
bool AgentLink::try_to_join(std::string& reason) {
    if (server_ == nullptr && may_host()) {
        try {
            server_ = StoreServer::start({.bind_host = options_.this_machine_only ? "127.0.0.1" : "",
                                          .port = port_,
                                          .job_id = agents_table(options_.run_id),
                                          .secret = options_.secret});
            port_ = server_->port();
        } catch (const CommError& error) {
            if (options_.hosting == Hosting::always) throw DeviceError(fmt::format("{}{}", options_.port_option, error.what()));
        }
    }
    try {
        const StoreClientOptions client{.host = server_ != nullptr ? "127.0.0.1" : options_.host,
                                        .port = port_,
                                        .job_id = agents_table(options_.run_id),
                                        .secret = options_.secret,
                                        .connect_timeout_ms = kAttemptMs,
                                        .request_timeout_ms = kRequestMs};
        store_ = connect_store(client);
        if (server_ != nullptr && service_ == nullptr) {
            service_ =
                std::make_unique<CoordinatorService>(options_.coordination, options_.keep_alive_s, *server_, connect_store(client));
        }
        enter();
        is_host_ = server_ != nullptr;
        return true;
    } catch (const StoreRefused&) {
        throw;
    } catch (const CommError& error) {
        reason = error.what();
        return false;
    }
}

// Asked at each try: the name of a pod that is just starting may not be known yet.
bool AgentLink::may_host() const {
    if (options_.hosting != Hosting::where_possible) return options_.hosting == Hosting::always;
    return is_own_address(options_.host);
}

void AgentLink::enter() {
    AgentEvent joined{.kind = AgentEvent::Kind::joined, .facts = options_.facts};
    joined.facts.clock_s = wall_clock_s();
    const std::string presence = fmt::format("present/{}/{}/{}", options_.facts.host, getpid(), now_ns());
    store_->set(presence, "");
    {
        const std::lock_guard lock(mutex_);
        presence_ = presence;
    }
    number_ = store_->append(kEventList, encode(joined));
    store_->append_when_gone(kEventList, encode(AgentEvent{.kind = AgentEvent::Kind::gone, .agent = number_}));
}

void AgentLink::follow_decisions() {
    const int64_t patience_ns = static_cast<int64_t>(1e9 * options_.coordination.silent_after_s);
    AwakeClock awake(patience_ns / 2);  // one try may take that long
    int64_t answered_ns = awake.read();
    for (int64_t number = 0; !leaving_;) {
        std::string bytes;
        try {
            if (!knows_this_agent())
                return end_with({.reason = "the launcher that served the run is gone, another serves in its place"});
            const std::string key = list_key(kDecisionList, number);
            const std::optional<std::string> there = store_->get(key);
            answered_ns = awake.read();
            bytes = there ? *there : store_->wait(key, kFollowMs);
        } catch (const CommError& error) {
            if (leaving_) return;
            if (awake.read() - answered_ns < patience_ns && !is_refused_there()) continue;
            return end_with({.reason = error.what()});
        }
        ++number;
        std::optional<Decision> decision = decode_decision(bytes);
        if (!decision) continue;
        const bool is_last = decision->kind == Decision::Kind::finish;
        {
            const std::lock_guard lock(mutex_);
            incoming_.push_back(std::move(*decision));
        }
        signal_ready();
        if (is_last) return;
    }
}

// A client connects again by itself, and may then speak to the store of whoever took over: its lists are not those of this run.
bool AgentLink::knows_this_agent() {
    std::string presence;
    {
        const std::lock_guard lock(mutex_);
        presence = presence_;
    }
    return store_->get(presence).has_value();
}

// Nobody listens there any more: no reason to wait for an answer.
bool AgentLink::is_refused_there() const {
    std::string reason;
    return !try_connect(options_.host, port_, Deadline::after_ms(kAttemptMs), reason).is_open() && reason == "refused";
}

// Events as they come, and in between a sign of life.
void AgentLink::send() {
    const auto keep_alive = std::chrono::duration<double>(options_.keep_alive_s);
    for (int64_t beat = 0; !leaving_; ++beat) {
        std::optional<AgentEvent> event;
        {
            std::unique_lock lock(mutex_);
            sending_ = false;
            changed_.notify_all();
            changed_.wait_for(lock, keep_alive, [&] { return leaving_ || !outgoing_.empty(); });
            if (!outgoing_.empty()) {
                event = std::move(outgoing_.front());
                outgoing_.pop_front();
                sending_ = true;
            }
        }
        try {
            if (!event) {
                store_->set(beat_key(number_), fmt::format("{}", beat));
            } else if (event->kind == AgentEvent::Kind::joined) {
                enter();
            } else {
                event->agent = number_;
                store_->append(kEventList, encode(*event));
            }
        } catch (const CommError& error) {
            // The receiver sees it too, and knows when to give up; an event that is lost would be missed by the others.
            if (event) return end_with({.reason = error.what()});
        }
    }
}

}  // namespace lockstep
