#include "net/store_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "net/message.h"

namespace lockstep {

namespace {

constexpr size_t kReadBytes = size_t{64} << 10;

}  // namespace

void StoreConnection::receive() {
    if (input_.size() > kMaxFrameBytes + kReadBytes) {  // sends on while its request is being worked on
        dead_ = true;
        return;
    }
    const size_t before = input_.size();
    input_.resize(before + kReadBytes);
    const ssize_t received = recv(handle_.get(), input_.data() + before, kReadBytes, MSG_DONTWAIT);
    const int error = errno;
    input_.resize(before + static_cast<size_t>(std::max<ssize_t>(received, 0)));
    has_spoken_ = has_spoken_ || received > 0;
    if (received == 0 || (received < 0 && error != EAGAIN && error != EINTR)) dead_ = true;
}

void StoreConnection::send(std::string frame) {
    output_ = std::move(frame);
    sent_ = 0;
    flush();
}

void StoreConnection::send_and_close(std::string frame) {
    closing_ = true;
    send(std::move(frame));
}

void StoreConnection::flush() {
    while (sent_ < output_.size()) {
        const ssize_t sent = ::send(handle_.get(), output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) {
            dead_ = dead_ || errno != EAGAIN;
            return;
        }
        sent_ += static_cast<size_t>(sent);
    }
    output_.clear();
    sent_ = 0;
    dead_ = dead_ || closing_;
}

std::optional<std::string> StoreConnection::next_frame(size_t limit_bytes, bool& oversized) {
    oversized = false;
    if (dead_ || closing_ || is_sending() || input_.size() < kFrameHeaderBytes) return std::nullopt;
    const std::optional<size_t> payload_bytes = frame_payload_bytes(input_, limit_bytes);
    oversized = !payload_bytes;
    if (oversized || input_.size() < kFrameHeaderBytes + *payload_bytes) return std::nullopt;
    std::string payload = input_.substr(kFrameHeaderBytes, *payload_bytes);
    input_.erase(0, kFrameHeaderBytes + *payload_bytes);
    return payload;
}

}  // namespace lockstep
