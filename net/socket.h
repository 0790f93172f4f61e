// TCP sockets whose every operation has a deadline. Non-blocking inside, poll outside; close-on-exec; never SIGPIPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/clock.h"

namespace lockstep {

// Owns a file descriptor. Move only.
class FileHandle {
public:
    FileHandle() = default;
    explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
    FileHandle(FileHandle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    FileHandle& operator=(FileHandle&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    ~FileHandle();

    int get() const { return descriptor_; }
    bool is_open() const { return descriptor_ >= 0; }

private:
    int descriptor_ = -1;
};

// "10.0.0.1:29400", "[fe80::1]:29400"
std::string endpoint_text(std::string_view host, int port);

// A connected stream. Errors are CommError naming the peer's endpoint and how long it waited.
class Socket {
public:
    Socket(FileHandle handle, std::string peer) : handle_(std::move(handle)), peer_(std::move(peer)) {}

    void send_all(std::span<const std::byte> bytes, const Deadline& deadline);
    void receive_exact(std::span<std::byte> bytes, const Deadline& deadline);
    int descriptor() const { return handle_.get(); }
    const std::string& peer() const { return peer_; }

private:
    void wait_ready(short events, const Deadline& deadline, std::string_view doing);

    FileHandle handle_;
    std::string peer_;
};

// One round over all addresses of the name, IPv4 and IPv6. On failure returns a closed handle and puts the reason into `reason`.
FileHandle try_connect(const std::string& host, int port, const Deadline& deadline, std::string& reason);

// Begins a connection to a numeric address and does not wait: once the socket is writable, `connect_result` says how it went. A
// closed handle with errno in `error` when it cannot even begin. The descriptor stays non-blocking, without Nagle's delay.
FileHandle start_connect(const std::string& numeric_host, int port, int& error);
int connect_result(int descriptor);  // errno, 0 for success

// The next connection that waits at a non-blocking listener, set up as start_connect's, and the peer's endpoint; closed: none.
FileHandle accept_connection(int listener, std::string& peer);

// Repeats try_connect until the deadline. CommError "cannot reach HOST:PORT: REASON for N s; ...".
Socket connect_socket(const std::string& host, int port, int64_t timeout_ms);

// Listens on `host` (empty: all interfaces, both families where the machine has them). CommError naming host and port when taken.
FileHandle listen_on(const std::string& host, int port);
int bound_port(int descriptor);

// Numeric local address from which `host` is reached; empty when there is no route.
std::string local_address_towards(const std::string& host, int port);

}  // namespace lockstep
