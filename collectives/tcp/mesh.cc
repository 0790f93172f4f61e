#include "collectives/tcp/mesh.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/tcp/address_book.h"
#include "collectives/tcp/handshake.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "net/message.h"
#include "net/open_files.h"

namespace lockstep::tcp {

namespace {

constexpr int64_t kHandshakeTimeoutMs = 5000;  // for a connection that says nothing or stops half-way
constexpr int64_t kConnectTimeoutMs = 3000;    // for one address, before the next is tried
constexpr int64_t kRetryPauseMs = 50;
constexpr size_t kMaxCallers = 1024;  // unproven at a time; more wait in the kernel's queue
constexpr size_t kSpareFiles = 6;     // listener, epoll, wake-up, and room for strangers who knock

// A connection on which the handshake is under way. Reads exactly the handshake's bytes: what follows is not ours.
struct Attempt {
    FileHandle socket;
    std::string address;
    Handshake handshake;
    Deadline deadline = Deadline::after_ms(kHandshakeTimeoutMs);
    bool connecting = false;
    std::string input;  // of the frame that is coming
    std::string output;
    bool broken = false;  // `reason` says why
    std::string reason;
};

// A rank to be called: at one of its addresses after the other until one answers as it should.
struct Callee {
    int peer = -1;
    std::vector<Endpoint> endpoints;
    size_t tries = 0;
    Deadline next_try = Deadline::after_ms(0);
    std::optional<Attempt> attempt;
    bool done = false;
    std::string last_reason = "not tried";
};

void break_off(Attempt& attempt, std::string reason) {
    attempt.broken = true;
    attempt.reason = std::move(reason);
}

void write_output(Attempt& attempt) {
    attempt.output += attempt.handshake.take_output();
    if (attempt.output.empty()) return;
    const ssize_t sent = send(attempt.socket.get(), attempt.output.data(), attempt.output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) attempt.output.erase(0, static_cast<size_t>(sent));
    if (sent < 0 && errno != EAGAIN && errno != EINTR) break_off(attempt, std::strerror(errno));
}

// Bytes that the frame in `input` still needs; nullopt: its length is none of a handshake's.
std::optional<size_t> bytes_missing(const std::string& input) {
    if (input.size() < kFrameHeaderBytes) return kFrameHeaderBytes - input.size();
    const std::optional<size_t> payload_bytes = frame_payload_bytes(input, kMaxHandshakeBytes);
    if (!payload_bytes) return std::nullopt;
    return kFrameHeaderBytes + *payload_bytes - input.size();
}

void read_input(Attempt& attempt) {
    while (attempt.handshake.state() == Handshake::State::under_way && !attempt.broken) {
        const std::optional<size_t> missing = bytes_missing(attempt.input);
        if (!missing) return break_off(attempt, "it does not speak this program's protocol");
        if (*missing == 0) {
            attempt.handshake.receive(std::string_view(attempt.input).substr(kFrameHeaderBytes));
            attempt.input.clear();
            write_output(attempt);
            continue;
        }
        char piece[kMaxHandshakeBytes];
        const ssize_t got = recv(attempt.socket.get(), piece, std::min(*missing, sizeof piece), MSG_DONTWAIT);
        if (got > 0) {
            attempt.input.append(piece, static_cast<size_t>(got));
        } else if (got == 0) {
            break_off(attempt, "it closed the connection");
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            break_off(attempt, std::strerror(errno));
        }
    }
}

void serve(Attempt& attempt, short events) {
    if (attempt.connecting) {
        if ((events & (POLLOUT | POLLERR | POLLHUP)) == 0) return;
        if (const int error = connect_result(attempt.socket.get()); error != 0) {
            return break_off(attempt, error == ECONNREFUSED ? "refused" : std::strerror(error));
        }
        attempt.connecting = false;
        attempt.deadline = Deadline::after_ms(kHandshakeTimeoutMs);
    }
    if ((events & (POLLIN | POLLERR | POLLHUP)) != 0) read_input(attempt);
    if (!attempt.broken) write_output(attempt);
    if (attempt.handshake.state() == Handshake::State::refused) break_off(attempt, attempt.handshake.reason());
}

// Proven on both sides, and the last message is on its way.
bool is_done(const Attempt& attempt) {
    return !attempt.broken && attempt.handshake.state() == Handshake::State::done && attempt.output.empty();
}

class Mesh {
public:
    Mesh(const World& world, const AddressBook& book, FileHandle listener, const TcpOptions& options, Identity identity)
        : world_(world),
          options_(options),
          identity_(std::move(identity)),
          listener_(std::move(listener)),
          expected_(static_cast<size_t>(world.size), false) {
        for (const int peer : peers_of(world, options)) {
            if (peer < world.rank) {
                callees_.push_back({.peer = peer, .endpoints = book.endpoints[static_cast<size_t>(peer)]});
            } else {
                expected_[static_cast<size_t>(peer)] = true;
            }
        }
    }

    std::vector<Link> connect_all() {
        const int64_t start_ns = now_ns();
        const Deadline deadline = Deadline::after_ms(options_.connect_timeout_ms);
        while (!complete()) {
            if (deadline.expired()) throw_missing(start_ns);
            start_calls();
            wait_for_events(deadline);
            serve_callees();
            serve_callers();
        }
        return std::move(links_);
    }

private:
    bool complete() const {
        return std::none_of(expected_.begin(), expected_.end(), [](bool each) { return each; }) &&
               std::all_of(callees_.begin(), callees_.end(), [](const Callee& each) { return each.done; });
    }

    void add_link(int peer, FileHandle socket) { links_.push_back({peer, std::move(socket)}); }

    void start_calls() {
        for (Callee& callee : callees_) {
            if (callee.done || callee.attempt || !callee.next_try.expired()) continue;
            const Endpoint& endpoint = callee.endpoints[callee.tries++ % callee.endpoints.size()];
            int error = 0;
            FileHandle socket = start_connect(endpoint.host, endpoint.port, error);
            if (!socket.is_open()) {
                retry(callee, std::strerror(error));
                continue;
            }
            callee.attempt.emplace(Attempt{.socket = std::move(socket),
                                           .address = endpoint_text(endpoint.host, endpoint.port),
                                           .handshake = Handshake::as_caller(identity_, callee.peer),
                                           .deadline = Deadline::after_ms(kConnectTimeoutMs),
                                           .connecting = true});
        }
    }

    void retry(Callee& callee, std::string reason) {
        callee.last_reason = std::move(reason);
        callee.attempt.reset();
        callee.next_try = Deadline::after_ms(kRetryPauseMs);
    }

    void wait_for_events(const Deadline& deadline) {
        poll_set_.clear();
        for (const Callee& callee : callees_) {
            if (callee.attempt) poll_set_.push_back(entry_of(*callee.attempt));
        }
        for (const Attempt& caller : callers_) poll_set_.push_back(entry_of(caller));
        // Last, and not at all when too many strangers are at the door.
        if (callers_.size() < kMaxCallers) poll_set_.push_back({listener_.get(), POLLIN, 0});
        const int64_t wait_ms = std::min<int64_t>(deadline.remaining_ms(), kRetryPauseMs);
        if (poll(poll_set_.data(), poll_set_.size(), static_cast<int>(wait_ms)) < 0) check(errno == EINTR, "poll works");
        next_entry_ = 0;
    }

    static pollfd entry_of(const Attempt& attempt) {
        const bool wants_out = attempt.connecting || !attempt.output.empty();
        return {attempt.socket.get(), static_cast<short>(wants_out ? POLLIN | POLLOUT : POLLIN), 0};
    }

    // In the order in which wait_for_events has listed them.
    short next_events() { return poll_set_[next_entry_++].revents; }

    void serve_callees() {
        for (Callee& callee : callees_) {
            if (!callee.attempt) continue;
            Attempt& attempt = *callee.attempt;
            serve(attempt, next_events());
            if (is_done(attempt)) {
                add_link(callee.peer, std::move(attempt.socket));
                callee.attempt.reset();
                callee.done = true;
            } else if (attempt.broken) {
                const bool is_final = attempt.handshake.state() == Handshake::State::refused && !attempt.handshake.is_stranger();
                if (is_final) {
                    throw CommError(fmt::format("rank {} cannot join at rank {} ({}): {}", world_.rank, callee.peer,
                                                attempt.address, attempt.reason));
                }
                retry(callee, fmt::format("{}: {}", attempt.address, attempt.reason));
            } else if (attempt.deadline.expired()) {
                retry(callee, fmt::format("{}: no answer", attempt.address));
            }
        }
    }

    void serve_callers() {
        for (Attempt& caller : callers_) {
            serve(caller, next_events());
            if (is_done(caller)) {
                add_link(caller.handshake.peer(), std::move(caller.socket));
                expected_[static_cast<size_t>(caller.handshake.peer())] = false;
            } else if (!caller.broken && caller.deadline.expired()) {
                break_off(caller, "it said nothing for too long");
            }
            if (caller.broken) log::warn_here("refused a connection from {}: {}", caller.address, caller.reason);
        }
        std::erase_if(callers_, [](const Attempt& each) { return each.broken || !each.socket.is_open(); });
        if (next_entry_ < poll_set_.size() && (next_events() & POLLIN) != 0) accept_callers();
    }

    void accept_callers() {
        while (callers_.size() < kMaxCallers) {
            std::string address;
            FileHandle socket = accept_connection(listener_.get(), address);
            if (!socket.is_open()) return;
            callers_.push_back({.socket = std::move(socket),
                                .address = std::move(address),
                                .handshake = Handshake::as_listener(identity_, [this](int rank) { return objection_to(rank); })});
        }
    }

    std::string objection_to(int rank) const {
        if (expected_[static_cast<size_t>(rank)]) return {};
        return fmt::format("rank {} is connected already or not expected; give each process its own rank", rank);
    }

    [[noreturn]] void throw_missing(int64_t start_ns) const {
        std::vector<int> missing;
        std::string detail;
        for (const Callee& callee : callees_) {
            if (callee.done) continue;
            missing.push_back(callee.peer);
            detail = fmt::format("; rank {} last: {}", callee.peer, callee.last_reason);
        }
        for (size_t rank = 0; rank < expected_.size(); ++rank) {
            if (expected_[rank]) missing.push_back(static_cast<int>(rank));
        }
        std::sort(missing.begin(), missing.end());
        throw CommError(
            fmt::format("rank {} is not connected to {} {} after {:.1f} s{}; check firewalls, or choose the network with "
                        "comm.interface",
                        world_.rank, missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "),
                        1e-9 * static_cast<double>(now_ns() - start_ns), detail));
    }

    const World& world_;
    const TcpOptions& options_;
    const Identity identity_;
    FileHandle listener_;
    std::vector<bool> expected_;  // by rank: has still to call
    std::vector<Callee> callees_;
    std::vector<Attempt> callers_;
    std::vector<Link> links_;
    std::vector<pollfd> poll_set_;
    size_t next_entry_ = 0;
};

// Raised for a name that the kernel does not know; the listener hands the choice on to the connections it accepts.
void set_congestion_control(int descriptor, const std::string& name) {
    if (name.empty() ||
        setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0) {
        return;
    }
    throw ConfigError(fmt::format("TCP congestion control `{}` cannot be used here ({}); there are: {}", name, std::strerror(errno),
                                  available_congestion_controls()));
}

}  // namespace

std::vector<Link> connect_mesh(const World& world, Store& store, const std::string& prefix, const TcpOptions& options) {
    FileHandle listener;
    const AddressBook book = exchange_addresses(world, store, prefix, options, [&](const std::string& host) {
        reserve_open_files(peers_of(world, options).size() + kSpareFiles, fmt::format("a job of {} ranks over TCP", world.size));
        listener = listen_on(host, 0);
        set_congestion_control(listener.get(), options.congestion_control);
        return bound_port(listener.get());
    });
    Identity identity{.rank = world.rank, .size = world.size, .job = world.job_id + ' ' + prefix, .secret = book.secret};
    std::vector<Link> links = Mesh(world, book, std::move(listener), options, std::move(identity)).connect_all();
    for (const Link& link : links) set_congestion_control(link.socket.get(), options.congestion_control);
    return links;
}

}  // namespace lockstep::tcp
