#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/format.h>

#include "bench/netlab/lab.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep::netlab {

namespace {

constexpr int kPort = 29'400;
constexpr int kPings = 200;
constexpr size_t kPingBytes = 64;
constexpr size_t kPieceBytes = size_t{256} << 10;
constexpr int64_t kTimeout_ms = 3'000;
constexpr int64_t kSettle_ns = 500'000'000, kStream_ns = 1'000'000'000;  // the window grows first, then it is timed

Socket accept_one(const FileHandle& listener) {
    const Deadline deadline = Deadline::after_ms(kTimeout_ms);
    while (!deadline.expired()) {
        FileHandle accepted(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (accepted.is_open()) {
            const int on = 1;
            setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            return {std::move(accepted), "lab-node0"};
        }
    }
    throw CommError(fmt::format("netlab: nobody came to the self-test for {} ms", kTimeout_ms));
}

// Answers the pings, then reads what comes and says how fast it came, in bytes per second.
int serve() {
    const FileHandle listener = listen_on("", kPort);
    Socket socket = accept_one(listener);
    std::vector<std::byte> piece(kPieceBytes);
    const std::span<std::byte> ping = std::span(piece).first(kPingBytes);
    for (int count = 0; count < kPings; ++count) {
        socket.receive_exact(ping, Deadline::after_ms(kTimeout_ms));
        socket.send_all(ping, Deadline::after_ms(kTimeout_ms));
    }
    const auto receive_for = [&](int64_t duration_ns) {
        const int64_t start_ns = now_ns();
        double bytes = 0;
        while (now_ns() - start_ns < duration_ns) {
            socket.receive_exact(piece, Deadline::after_ms(kTimeout_ms));
            bytes += static_cast<double>(piece.size());
        }
        return bytes / (static_cast<double>(now_ns() - start_ns) / 1e9);
    };
    receive_for(kSettle_ns);
    std::array<double, 1> bytes_per_s{receive_for(kStream_ns)};
    socket.send_all(std::as_bytes(std::span(bytes_per_s)), Deadline::after_ms(kTimeout_ms));
    return 0;
}

double median_ping_ms(Socket& socket) {
    std::array<std::byte, kPingBytes> ping{};
    std::vector<double> times_ms;
    for (int count = 0; count < kPings; ++count) {
        const int64_t start_ns = now_ns();
        socket.send_all(ping, Deadline::after_ms(kTimeout_ms));
        socket.receive_exact(ping, Deadline::after_ms(kTimeout_ms));
        times_ms.push_back(static_cast<double>(now_ns() - start_ns) / 1e6);
    }
    std::ranges::sort(times_ms);
    return times_ms[times_ms.size() / 2];
}

// Sends until the answer comes.
double stream_bytes_per_s(Socket& socket) {
    const std::vector<std::byte> piece(kPieceBytes);
    std::array<double, 1> bytes_per_s{};
    while (recv(socket.descriptor(), bytes_per_s.data(), sizeof bytes_per_s, MSG_PEEK | MSG_DONTWAIT) <= 0) {
        try {
            socket.send_all(piece, Deadline::after_ms(kTimeout_ms));
        } catch (const CommError&) {
            break;  // the other side has said how fast it was and has left
        }
    }
    socket.receive_exact(std::as_writable_bytes(std::span(bytes_per_s)), Deadline::after_ms(kTimeout_ms));
    return bytes_per_s[0];
}

int measure(const std::string& address, const LinkOptions& link) {
    Socket socket = connect_socket(address, kPort, kTimeout_ms);
    const double rtt_ms = median_ping_ms(socket);
    const double mbit_per_s = 8e-6 * stream_bytes_per_s(socket);
    const std::string asked = link.rate_bit_per_s > 0 ? fmt::format("{:.0f}", link.rate_bit_per_s / 1e6) : "no limit";
    fmt::print("rtt_ms {:.3f} (asked {:.3f})\nrate_mbit {:.0f} (asked {})\n", rtt_ms, 2e-6 * static_cast<double>(link.delay_ns),
               mbit_per_s, asked);
    return 0;
}

}  // namespace

int self_test(Lab& lab, const LinkOptions& link) {
    const std::string address = lab.nodes().at(1).address;
    lab.start("self-test, node 1", 1, serve);
    lab.start("self-test, node 0", 0, [&] { return measure(address, link); });
    return lab.run();
}

}  // namespace lockstep::netlab
