#include "collectives/tcp/tcp_transport.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include "collectives/tcp/connection.h"
#include "collectives/tcp/mesh.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

using tcp::Connection;
using tcp::PeerClock;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kAbortPatienceNs = 300 * kMs;     // to bring an abort to peers that do not read
constexpr int64_t kGoodbyePatienceNs = 1000 * kMs;  // to bring the last bytes across in order
constexpr uint32_t kWakeIndex = UINT32_MAX;

class TcpTransport final : public Transport {
public:
    TcpTransport(const World& world, std::vector<tcp::Link> links, const TcpOptions& options)
        : rank_(world.rank),
          timeout_ns_(options.timeout_ms * kMs),
          timeout_ms_(options.timeout_ms),
          heartbeat_ns_(std::min(options.heartbeat_ms, std::max<int64_t>(options.timeout_ms / 4, 1)) * kMs),
          awake_(timeout_ns_ / 10),
          by_rank_(static_cast<size_t>(world.size)),
          epoll_(epoll_create1(EPOLL_CLOEXEC)),
          wake_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (!epoll_.is_open() || !wake_event_.is_open()) {
            throw DeviceError(
                fmt::format("no event descriptor for TCP: {}; raise the limit of open files (ulimit -n)", std::strerror(errno)));
        }
        add_to_epoll(wake_event_.get(), EPOLLIN, kWakeIndex);
        const int64_t now = awake_.read();
        progress_ns_ = now;
        for (tcp::Link& link : links) {
            const auto index = static_cast<uint32_t>(link.peer);
            by_rank_[index] = std::make_unique<Connection>(rank_, std::move(link), options);
            Connection& connection = *by_rank_[index];
            connections_.push_back(&connection);
            connection.clock().heard_ns = connection.clock().fresh_ns = now;
            add_to_epoll(connection.descriptor(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, index);
        }
    }

    ~TcpTransport() override {
        if (failure_.empty()) say_goodbye();
    }

    std::string_view name() const override { return "tcp"; }

    void post_send(Transfer& transfer) override {
        Connection& connection = connection_to(transfer);
        begin_waiting(connection);
        connection.outbox().post(transfer);
    }

    void post_receive(Transfer& transfer) override {
        Connection& connection = connection_to(transfer);
        begin_waiting(connection);
        connection.inbox().post(transfer);
    }

    bool progress(int64_t patience_ns) override {
        if (!failure_.empty()) throw CommError(failure_);
        bool woken = take_events(0);
        const int64_t start_ns = awake_.read();
        for (int64_t now = start_ns;; now = awake_.read()) {
            const bool looks_at_clock = now >= next_look_ns_;
            if (looks_at_clock) send_heartbeats(now);
            const size_t moved = pump(now);
            throw_if_something_is_wrong();
            if (looks_at_clock) check_peers(now);
            if (moved > 0) return true;
            if (woken || now - start_ns >= patience_ns) return false;
            const int64_t end_ns = std::min(start_ns + patience_ns, next_look_ns_);
            woken = take_events(std::max<int64_t>(end_ns - now, 0));
        }
    }

    void note_progress() noexcept override { noted_.store(true, std::memory_order_relaxed); }

    void wake() noexcept override {
        const uint64_t one = 1;
        // The counter cannot overflow, and a full one has woken the owner already.
        [[maybe_unused]] const ssize_t written = write(wake_event_.get(), &one, sizeof one);
    }

    void abort(std::string_view reason) noexcept override {
        {
            const std::lock_guard lock(abort_mutex_);
            if (abort_wanted_.load()) return;  // the first reason counts
            const auto end = fmt::format_to_n(abort_text_.data(), abort_text_.size(), "rank {} gave up: {}", rank_, reason);
            abort_bytes_ = std::min(end.size, abort_text_.size());
            abort_wanted_.store(true);
        }
        wake();
    }

private:
    void add_to_epoll(int descriptor, uint32_t events, uint32_t index) {
        epoll_event event{};
        event.events = events;
        event.data.u32 = index;
        check(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0, "epoll takes the descriptor");
    }

    Connection& connection_to(const Transfer& transfer) {
        check(transfer.peer >= 0 && static_cast<size_t>(transfer.peer) < by_rank_.size() && transfer.bytes > 0,
              "a transfer has a peer and bytes");
        const auto& connection = by_rank_[static_cast<size_t>(transfer.peer)];
        check(connection != nullptr, "there is a connection to the peer");
        return *connection;
    }

    void begin_waiting(Connection& connection) {
        PeerClock& clock = connection.clock();
        if (clock.waiting_since_ns < 0) clock.waiting_since_ns = awake_.read();
    }

    // Waits at most `wait_ns`; true when somebody has called wake().
    bool take_events(int64_t wait_ns) {
        std::array<epoll_event, 64> events;
        const timespec wait{.tv_sec = wait_ns / 1'000'000'000, .tv_nsec = wait_ns % 1'000'000'000};
        const int count = epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()), &wait, nullptr);
        check(count >= 0 || errno == EINTR, "epoll waits");
        bool woken = false;
        for (int index = 0; index < count; ++index) {
            const epoll_event& event = events[static_cast<size_t>(index)];
            if (event.data.u32 == kWakeIndex) {
                uint64_t calls = 0;
                woken = read(wake_event_.get(), &calls, sizeof calls) > 0 || woken;
            } else {
                by_rank_[event.data.u32]->on_events(event.events);
            }
        }
        return woken;
    }

    size_t pump(int64_t now) {
        size_t moved = 0;
        for (Connection* connection : connections_) {
            moved += connection->pump(now);
            if (!connection->has_posted()) connection->clock().waiting_since_ns = -1;
        }
        if (moved > 0) progress_ns_ = now;
        return moved;
    }

    std::string own_reason() {
        const std::lock_guard lock(abort_mutex_);
        return {abort_text_.data(), abort_bytes_};
    }

    // The peers' own words first: they know the cause, a closed connection is only its effect.
    void throw_if_something_is_wrong() {
        if (abort_wanted_.load()) fail(own_reason());
        for (Connection* connection : connections_) {
            if (const std::string& reason = connection->inbox().abort_reason(); !reason.empty()) fail(reason);
        }
        for (Connection* connection : connections_) {
            if (const std::string& fault = connection->inbox().fault(); !fault.empty()) fail(fault);
        }
        for (Connection* connection : connections_) {
            const int peer = connection->peer();
            if (connection->inbox().peer_left()) {
                if (connection->has_posted()) {
                    fail(fmt::format("rank {} left the job while rank {} still exchanges data with it", peer, rank_));
                }
            } else if (connection->is_closed()) {
                fail(fmt::format("rank {} died or lost its connection to rank {} ({})", peer, rank_, connection->close_reason()));
            }
        }
    }

    // The newest sign of life that this rank passes on: its own, or that of a peer it waits for.
    int64_t freshest_ns(bool& waits) const {
        int64_t freshest = progress_ns_;
        waits = false;
        for (Connection* connection : connections_) {
            const PeerClock& clock = connection->clock();
            if (clock.waiting_since_ns < 0) continue;
            waits = true;
            freshest = std::max(freshest, clock.fresh_ns);
        }
        return freshest;
    }

    void send_heartbeats(int64_t now) {
        if (noted_.exchange(false, std::memory_order_relaxed)) progress_ns_ = now;
        bool waits = false;
        const int64_t freshest = freshest_ns(waits);
        // News is passed on early, so that it crosses a chain of waiting ranks in time.
        const int64_t period_ns = freshest > beat_freshest_ns_ ? heartbeat_ns_ / 4 : heartbeat_ns_;
        if (now < last_beat_ns_ + period_ns) return;
        last_beat_ns_ = now;
        beat_freshest_ns_ = freshest;
        for (Connection* connection : connections_) {
            if (connection->is_closed() || connection->inbox().peer_left()) continue;
            connection->outbox().queue_heartbeat(std::max<int64_t>(now - freshest, 0), waits);
        }
    }

    void check_peers(int64_t now) {
        next_look_ns_ = now + std::min(heartbeat_ns_ / 4, timeout_ns_ / 20);
        for (Connection* connection : connections_) {
            check_silence(*connection, now);
            // The kernel would end a connection whose peer lives but has no room for a while.
            const bool lives = now - connection->clock().heard_ns < timeout_ns_;
            if (!connection->is_closed()) connection->set_user_timeout(lives && connection->output_blocked() ? 0 : timeout_ms_);
        }
    }

    void check_silence(Connection& connection, int64_t now) {
        const PeerClock& clock = connection.clock();
        if (!clock.is_lost(now, timeout_ns_, 2 * heartbeat_ns_)) return;
        const bool heard = now - clock.heard_ns < timeout_ns_;
        const char* what = connection.inbox().stalled() ? "its messages wait for receives that are not posted"
                           : heard                      ? "its process lives"
                                                        : "nothing comes from its process";
        fail(fmt::format("rank {} made no progress for {:.1f} s, rank {} waits for it ({})", connection.peer(),
                         1e-9 * static_cast<double>(clock.silent_ns(now)), rank_, what));
    }

    // Tells all peers and throws. Afterwards no posted transfer is touched any more.
    [[noreturn]] void fail(std::string text) {
        failure_ = std::move(text);
        for (Connection* connection : connections_) {
            connection->inbox().drop_posted();
            connection->outbox().queue_abort(failure_);
        }
        flush(kAbortPatienceNs, [](const Connection& each) { return each.is_flushed(); });
        throw CommError(failure_);
    }

    void say_goodbye() {
        if (abort_wanted_.load()) {
            try {
                throw_if_something_is_wrong();
            } catch (const CommError&) {
                return;
            }
        }
        for (Connection* connection : connections_) {
            // The memory of a message that is under way may be gone.
            if (connection->outbox().mid_message_frame()) {
                connection->reset();
            } else {
                connection->outbox().drop_posted();
                connection->outbox().queue_goodbye();
            }
        }
        flush(kGoodbyePatienceNs, [](const Connection& each) { return each.is_flushed(); });
    }

    // Writes until `done` holds for all or the time is over; then whoever has not got everything is cut off.
    template <typename Done>
    void flush(int64_t patience_ns, Done done) {
        const int64_t end_ns = now_ns() + patience_ns;
        while (true) {
            for (Connection* connection : connections_) connection->pump_output_only();
            const bool all_done =
                std::all_of(connections_.begin(), connections_.end(), [&](Connection* each) { return done(*each); });
            if (all_done || now_ns() >= end_ns) break;
            take_events(kMs);
        }
        for (Connection* connection : connections_) {
            if (!done(*connection)) connection->reset();
        }
    }

    const int rank_;
    const int64_t timeout_ns_;
    const int64_t timeout_ms_;
    const int64_t heartbeat_ns_;
    AwakeClock awake_;                                  // of all times here
    std::vector<std::unique_ptr<Connection>> by_rank_;  // null: this rank, or not connected
    std::vector<Connection*> connections_;              // those that are
    FileHandle epoll_;
    FileHandle wake_event_;

    int64_t progress_ns_ = 0;  // this rank last got on
    int64_t next_look_ns_ = 0;
    int64_t last_beat_ns_ = 0;
    int64_t beat_freshest_ns_ = 0;
    std::string failure_;  // not empty: this transport is dead

    std::atomic<bool> noted_ = false;
    std::atomic<bool> abort_wanted_{false};
    std::mutex abort_mutex_;
    std::array<char, tcp::kMaxReasonBytes> abort_text_{};  // guarded by abort_mutex_
    size_t abort_bytes_ = 0;                               // likewise
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const World& world, Store& store, const std::string& prefix,
                                              const TcpOptions& options) {
    return std::make_unique<TcpTransport>(world, tcp::connect_mesh(world, store, prefix, options), options);
}

}  // namespace lockstep
