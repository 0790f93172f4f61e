#include "collectives/tcp/connection.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::tcp {

namespace {

constexpr int kFramesPerPass = 16;
constexpr size_t kWakeBytes = size_t{64} << 10;  // of a large message: worth waking up for

}  // namespace

Connection::Connection(int own_rank, Link link, const TcpOptions& options)
    : peer_(link.peer),
      socket_(std::move(link.socket)),
      inbox_(own_rank, link.peer, options.kept_bytes),
      outbox_(options.chunk_bytes) {}

void Connection::on_events(uint32_t epoll_events) {
    if ((epoll_events & EPOLLOUT) != 0) writable_ = true;
    if ((epoll_events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) readable_ = true;
    if ((epoll_events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hung_up_ = true;
    if ((epoll_events & (EPOLLHUP | EPOLLERR)) != 0) write_broken_ = true;
}

size_t Connection::pump(int64_t now) {
    if (closed_) return 0;
    const uint64_t beats_before = inbox_.heartbeat_count();
    const size_t sent = write_some();
    const size_t received = read_some();
    if (received > 0) clock_.heard_ns = now;
    if (sent + received > 0) clock_.on_bytes_moved(now);
    if (inbox_.heartbeat_count() != beats_before) {
        clock_.on_heartbeat(now, inbox_.heartbeat_age_ns(), inbox_.peer_waits());
    }
    return sent + received;
}

void Connection::close_with(std::string reason) {
    closed_ = true;
    close_reason_ = std::move(reason);
}

void Connection::consume_staged() {
    staged_first_ += inbox_.consume(std::span(staging_).subspan(staged_first_, staged_last_ - staged_first_));
}

size_t Connection::read_some() {
    const uint64_t before = inbox_.data_bytes();
    if (staged_first_ < staged_last_) consume_staged();
    if (inbox_.stalled()) {
        // Whoever is behind a broken connection will not say more than what stands in the kernel's queue, and that has no place.
        if (write_broken_) close_with("broken while its messages wait for their receives");
        return inbox_.data_bytes() - before;
    }
    // Staged bytes that are left over belong behind the peer's last word or a fault: then there is nothing more to read.
    if (!readable_ || staged_first_ < staged_last_) return inbox_.data_bytes() - before;

    const std::span<std::byte> room = inbox_.payload_room();
    iovec pieces[2] = {{room.data(), room.size()}, {staging_.data(), staging_.size()}};
    const bool direct = !room.empty();
    const ssize_t got = readv(socket_.get(), direct ? pieces : pieces + 1, direct ? 2 : 1);
    if (got > 0) {
        const auto bytes = static_cast<size_t>(got);
        const size_t placed = std::min(bytes, room.size());
        if (placed > 0) inbox_.payload_filled(placed);
        staged_first_ = 0;
        staged_last_ = bytes - placed;
        consume_staged();
        // A short read means that the queue is empty; the next bytes bring a new event.
        if (bytes < room.size() + staging_.size() && !hung_up_) {
            readable_ = false;
            set_low_water();
        }
    } else if (got == 0) {
        close_with("it closed the connection");
    } else if (errno == EAGAIN) {
        readable_ = false;
        if (write_broken_) close_with("the connection broke");
    } else if (errno != EINTR) {
        close_with(std::strerror(errno));
    }
    return inbox_.data_bytes() - before;
}

// Inside a large payload a sleeper is not woken for each packet. What is asked for always comes: it belongs to the frame under way.
void Connection::set_low_water() {
    const auto bytes = static_cast<int>(std::clamp<size_t>(inbox_.payload_room().size(), 1, kWakeBytes));
    if (bytes == low_water_) return;
    low_water_ = bytes;
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &low_water_, sizeof low_water_);
}

size_t Connection::write_some() {
    size_t moved = 0;
    for (int frames = 0; frames < kFramesPerPass && writable_ && !write_broken_;) {
        Outbox::Pieces pieces;
        const int count = outbox_.next(pieces);
        if (count == 0) break;
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = static_cast<size_t>(count);
        const bool holds_back = outbox_.more_follows() && frames + 1 < kFramesPerPass;
        const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT | (holds_back ? MSG_MORE : 0));
        if (sent >= 0) {
            moved += outbox_.wrote(static_cast<size_t>(sent));
            ++frames;
        } else if (errno == EAGAIN) {
            writable_ = false;
        } else if (errno != EINTR) {
            // What the peer said before it went is still to be read: its goodbye or its reason may be there.
            write_broken_ = hung_up_ = readable_ = true;
        }
    }
    return moved;
}

void Connection::pump_output_only() {
    if (closed_) return;
    write_some();
    while (readable_ && !closed_) {
        const ssize_t got = recv(socket_.get(), staging_.data(), staging_.size(), MSG_DONTWAIT);
        if (got > 0 || (got < 0 && errno == EINTR)) continue;
        readable_ = false;
        if (got == 0 || errno != EAGAIN) hung_up_ = true;
    }
    if (write_broken_) close_with("broken");
}

void Connection::set_user_timeout(int64_t timeout_ms) {
    if (timeout_ms == user_timeout_ms_) return;
    user_timeout_ms_ = timeout_ms;
    const auto value = static_cast<unsigned int>(timeout_ms);
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &value, sizeof value);
}

bool Connection::is_flushed() const {
    if (closed_) return true;
    int queued_bytes = 0;
    return outbox_.empty() && (ioctl(socket_.get(), SIOCOUTQ, &queued_bytes) != 0 || queued_bytes == 0);
}

void Connection::reset() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket_ = FileHandle();
    closed_ = true;
}

}  // namespace lockstep::tcp
