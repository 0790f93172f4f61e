// Framing. A frame is a 32-bit little-endian length and that many bytes; a message is a sequence of fields in a frame. Nothing is
// allocated by a length that came from outside before it has been compared with a limit and with the bytes really there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "net/socket.h"

namespace lockstep {

inline constexpr size_t kFrameHeaderBytes = 4;
inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

class MessageWriter {
public:
    MessageWriter() : bytes_(kFrameHeaderBytes, '\0') {}
    void put_u8(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
    void put_u32(uint32_t value);
    void put_i64(int64_t value);
    void put_text(std::string_view text);
    std::string take_frame();  // header filled in; CommError when the message exceeds kMaxFrameBytes

private:
    std::string bytes_;
};

// Reads fields in order. Once a field does not fit, `ok` is false and every further field is zero or empty.
class MessageReader {
public:
    explicit MessageReader(std::string_view payload) : left_(payload) {}
    uint8_t get_u8();
    uint32_t get_u32();
    int64_t get_i64();
    std::string_view get_text();
    bool ok() const { return ok_; }
    bool at_end() const { return ok_ && left_.empty(); }

private:
    std::string_view take(size_t count);

    std::string_view left_;
    bool ok_ = true;
};

// Length in a frame header (first kFrameHeaderBytes of `bytes`); nullopt when it is over `limit_bytes`.
std::optional<size_t> frame_payload_bytes(std::string_view bytes, size_t limit_bytes);

void send_frame(Socket& socket, const std::string& frame, const Deadline& deadline);
std::string receive_frame(Socket& socket, const Deadline& deadline);  // the payload; CommError for a length over the limit

}  // namespace lockstep
