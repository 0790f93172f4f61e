#include "net/message.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

template <typename Integer>
void append_little_endian(std::string& bytes, Integer value) {
    for (size_t index = 0; index < sizeof(Integer); ++index) bytes.push_back(static_cast<char>((value >> (8 * index)) & 0xFF));
}

template <typename Integer>
Integer parse_little_endian(std::string_view bytes) {
    Integer value = 0;
    for (size_t index = 0; index < bytes.size(); ++index) {
        value |= static_cast<Integer>(static_cast<Integer>(static_cast<uint8_t>(bytes[index])) << (8 * index));
    }
    return value;
}

}  // namespace

void MessageWriter::put_u32(uint32_t value) { append_little_endian(bytes_, value); }
void MessageWriter::put_i64(int64_t value) { append_little_endian(bytes_, static_cast<uint64_t>(value)); }

void MessageWriter::put_text(std::string_view text) {
    if (text.size() > kMaxFrameBytes) {
        throw CommError(fmt::format("a value of {} bytes is too long for the store; the limit is {}", text.size(), kMaxFrameBytes));
    }
    put_u32(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
}

std::string MessageWriter::take_frame() {
    const size_t payload_bytes = bytes_.size() - kFrameHeaderBytes;
    if (payload_bytes > kMaxFrameBytes) {
        throw CommError(fmt::format("a message of {} bytes is too long; the limit is {}", payload_bytes, kMaxFrameBytes));
    }
    std::string header;
    append_little_endian(header, static_cast<uint32_t>(payload_bytes));
    std::copy(header.begin(), header.end(), bytes_.begin());
    return std::move(bytes_);
}

std::string_view MessageReader::take(size_t count) {
    if (!ok_ || count > left_.size()) {
        ok_ = false;
        return {};
    }
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
}

uint8_t MessageReader::get_u8() { return parse_little_endian<uint8_t>(take(1)); }
uint32_t MessageReader::get_u32() { return parse_little_endian<uint32_t>(take(4)); }
int64_t MessageReader::get_i64() { return static_cast<int64_t>(parse_little_endian<uint64_t>(take(8))); }
std::string_view MessageReader::get_text() { return take(get_u32()); }

std::optional<size_t> frame_payload_bytes(std::string_view bytes, size_t limit_bytes) {
    const auto length = parse_little_endian<uint32_t>(bytes.substr(0, kFrameHeaderBytes));
    if (length > limit_bytes) return std::nullopt;
    return length;
}

void send_frame(Socket& socket, const std::string& frame, const Deadline& deadline) {
    socket.send_all(std::as_bytes(std::span(frame)), deadline);
}

std::string receive_frame(Socket& socket, const Deadline& deadline) {
    std::string header(kFrameHeaderBytes, '\0');
    socket.receive_exact(std::as_writable_bytes(std::span(header)), deadline);
    const std::optional<size_t> payload_bytes = frame_payload_bytes(header, kMaxFrameBytes);
    if (!payload_bytes) throw CommError(fmt::format("{} does not speak the store's protocol; check host and port", socket.peer()));
    // Grows with what arrives, so a lying length costs its sender, not us.
    constexpr size_t kPieceBytes = size_t{1} << 20;
    std::string payload;
    while (payload.size() < *payload_bytes) {
        const size_t before = payload.size();
        payload.resize(before + std::min(kPieceBytes, *payload_bytes - before));
        socket.receive_exact(std::as_writable_bytes(std::span(payload).subspan(before)), deadline);
    }
    return payload;
}

}  // namespace lockstep
