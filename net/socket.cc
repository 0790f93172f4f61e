#include "net/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const std::string& host, int port, int socket_type, int flags, std::string& reason) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = socket_type;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0) {
        reason = fmt::format("the name does not resolve ({})", gai_strerror(error));
        found = nullptr;
    }
    return {found, &freeaddrinfo};
}

// Waits until the connection that is being made succeeds or fails; returns errno, 0 for success.
int finish_connect(int descriptor, const Deadline& deadline) {
    while (true) {
        pollfd entry{descriptor, POLLOUT, 0};
        const int ready = poll(&entry, 1, static_cast<int>(deadline.remaining_ms()));
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) return errno;
        if (ready == 0) return ETIMEDOUT;
        return connect_result(descriptor);
    }
}

void set_no_delay(int descriptor) {
    const int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

// One listening socket; on failure a closed handle with errno in `error`.
FileHandle listen_at(const sockaddr* address, socklen_t length, int family, int& error) {
    FileHandle handle(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    const int off = 0;
    if (handle.is_open()) {
        setsockopt(handle.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (family == AF_INET6) setsockopt(handle.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (bind(handle.get(), address, length) == 0 && listen(handle.get(), 1024) == 0) return handle;
    }
    error = errno;
    return {};
}

[[noreturn]] void throw_listen_error(const std::string& host, int port, int error) {
    const std::string where = endpoint_text(host.empty() ? "*" : host, port);
    if (error == EADDRINUSE) {
        throw CommError(
            fmt::format("port {} is in use: cannot listen on {}; choose another port, or 0 for a free one", port, where));
    }
    throw CommError(fmt::format("cannot listen on {}: {}; check the address and the port", where, std::strerror(error)));
}

}  // namespace

FileHandle::~FileHandle() {
    if (descriptor_ >= 0) close(descriptor_);
}

std::string endpoint_text(std::string_view host, int port) {
    return host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

void Socket::wait_ready(short events, const Deadline& deadline, std::string_view doing) {
    const int64_t start_ns = now_ns();
    while (true) {
        pollfd entry{handle_.get(), events, 0};
        const int ready = poll(&entry, 1, static_cast<int>(deadline.remaining_ms()));
        if (ready > 0) return;
        if (ready < 0 && errno != EINTR) throw CommError(fmt::format("poll for {} failed: {}", peer_, std::strerror(errno)));
        if (deadline.expired()) {
            throw CommError(fmt::format("no progress {} {} for {:.1f} s; check that the process there is alive and the network",
                                        doing, peer_, 1e-9 * static_cast<double>(now_ns() - start_ns)));
        }
    }
}

void Socket::send_all(std::span<const std::byte> bytes, const Deadline& deadline) {
    while (!bytes.empty()) {
        const ssize_t sent = send(handle_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            bytes = bytes.subspan(static_cast<size_t>(sent));
        } else if (errno == EAGAIN) {
            wait_ready(POLLOUT, deadline, "sending to");
        } else if (errno != EINTR) {
            throw CommError(fmt::format("connection to {} broke while sending: {}", peer_, std::strerror(errno)));
        }
    }
}

void Socket::receive_exact(std::span<std::byte> bytes, const Deadline& deadline) {
    while (!bytes.empty()) {
        const ssize_t received = recv(handle_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (received > 0) {
            bytes = bytes.subspan(static_cast<size_t>(received));
        } else if (received == 0) {
            throw CommError(fmt::format("{} closed the connection; its process has probably ended", peer_));
        } else if (errno == EAGAIN) {
            wait_ready(POLLIN, deadline, "waiting for");
        } else if (errno != EINTR) {
            throw CommError(fmt::format("connection to {} broke while receiving: {}", peer_, std::strerror(errno)));
        }
    }
}

FileHandle try_connect(const std::string& host, int port, const Deadline& deadline, std::string& reason) {
    const AddressList addresses = resolve(host, port, SOCK_STREAM, 0, reason);
    int64_t left = 0;
    for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) ++left;
    for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next, --left) {
        // A silent address must not use up the time of the next ones.
        const Deadline share = Deadline::after_ms(deadline.remaining_ms() / left);
        FileHandle handle(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!handle.is_open()) {
            reason = std::strerror(errno);
            continue;
        }
        int error = connect(handle.get(), address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
        if (error == EINPROGRESS || error == EINTR) error = finish_connect(handle.get(), share);
        if (error == 0) {
            set_no_delay(handle.get());
            return handle;
        }
        reason = error == ECONNREFUSED ? "refused" : std::strerror(error);
    }
    return {};
}

FileHandle start_connect(const std::string& numeric_host, int port, int& error) {
    std::string reason;
    const AddressList address = resolve(numeric_host, port, SOCK_STREAM, AI_NUMERICHOST, reason);
    error = EINVAL;
    if (address == nullptr) return {};
    FileHandle handle(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    error = errno;
    if (!handle.is_open()) return {};
    set_no_delay(handle.get());
    if (connect(handle.get(), address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS) return handle;
    error = errno;
    return {};
}

int connect_result(int descriptor) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
}

FileHandle accept_connection(int listener, std::string& peer) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    FileHandle handle(accept4(listener, reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!handle.is_open()) return {};
    set_no_delay(handle.get());
    char host[NI_MAXHOST] = "?";
    char service[NI_MAXSERV] = "0";
    getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, service, sizeof service,
                NI_NUMERICHOST | NI_NUMERICSERV);
    peer = endpoint_text(host, std::atoi(service));
    return handle;
}

Socket connect_socket(const std::string& host, int port, int64_t timeout_ms) {
    const int64_t start_ns = now_ns();
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    std::string reason = "no answer";
    for (int64_t pause_ms = 20;; pause_ms = std::min<int64_t>(2 * pause_ms, 500)) {
        const Deadline round = Deadline::after_ms(std::min<int64_t>(deadline.remaining_ms(), 5000));
        FileHandle handle = try_connect(host, port, round, reason);
        if (handle.is_open()) return {std::move(handle), endpoint_text(host, port)};
        if (deadline.expired()) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(std::min(pause_ms, deadline.remaining_ms())));
    }
    throw CommError(
        fmt::format("cannot reach {}: {} for {:.1f} s; check that the job's first process runs there and that the port is open",
                    endpoint_text(host, port), reason, 1e-9 * static_cast<double>(now_ns() - start_ns)));
}

FileHandle listen_on(const std::string& host, int port) {
    int error = 0;
    if (host.empty()) {
        sockaddr_in6 any6{};
        any6.sin6_family = AF_INET6;
        any6.sin6_port = htons(static_cast<uint16_t>(port));
        FileHandle handle = listen_at(reinterpret_cast<const sockaddr*>(&any6), sizeof any6, AF_INET6, error);
        if (handle.is_open()) return handle;
        if (error == EADDRINUSE || error == EACCES) throw_listen_error(host, port, error);
        sockaddr_in any4{};  // a machine without IPv6
        any4.sin_family = AF_INET;
        any4.sin_port = htons(static_cast<uint16_t>(port));
        handle = listen_at(reinterpret_cast<const sockaddr*>(&any4), sizeof any4, AF_INET, error);
        if (handle.is_open()) return handle;
        throw_listen_error(host, port, error);
    }
    std::string reason;
    const AddressList addresses = resolve(host, port, SOCK_STREAM, AI_PASSIVE, reason);
    if (addresses == nullptr) throw CommError(fmt::format("cannot listen on {}: {}", endpoint_text(host, port), reason));
    for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
        FileHandle handle = listen_at(address->ai_addr, address->ai_addrlen, address->ai_family, error);
        if (handle.is_open()) return handle;
    }
    throw_listen_error(host, port, error);
}

int bound_port(int descriptor) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    check(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) == 0, "a listening socket has a name");
    const bool is_v6 = address.ss_family == AF_INET6;
    return ntohs(is_v6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                       : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::string local_address_towards(const std::string& host, int port) {
    std::string reason;
    const AddressList addresses = resolve(host, port, SOCK_DGRAM, 0, reason);
    for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
        const FileHandle handle(socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        // Connecting a datagram socket sends nothing; it only asks the routing table.
        if (!handle.is_open() || connect(handle.get(), address->ai_addr, address->ai_addrlen) != 0) continue;
        sockaddr_storage local{};
        socklen_t length = sizeof local;
        char text[NI_MAXHOST];
        if (getsockname(handle.get(), reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
            getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
            return text;
        }
    }
    return {};
}

}  // namespace lockstep
