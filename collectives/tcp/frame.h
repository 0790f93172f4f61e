// What travels on a connection between two ranks once the handshake is over: frames, each a header of 32 bytes and a payload.
//
//   0  u32  magic                    16  u64  message bytes; for a heartbeat 1 when the sender itself waits for a peer
//   4  u8   kind, then 3 zeros       24  u32  payload bytes that follow
//   8  u64  tag; for a heartbeat     28  u32  check over the bytes before and the number of the frame on this connection
//           nanoseconds since the sender's last progress
//
// Little endian. A large message is a train of data frames with equal tag and message bytes; frames of other tags may stand
// between them. Nothing here touches a socket: bytes in, values out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::tcp {

inline constexpr size_t kHeaderBytes = 32;
inline constexpr size_t kMaxChunkBytes = size_t{16} << 20;  // payload of one data frame
inline constexpr size_t kMaxReasonBytes = 2048;             // payload of an abort frame

enum class FrameKind : uint8_t { data = 1, heartbeat, abort, goodbye };

struct FrameHeader {
    FrameKind kind = FrameKind::data;
    uint64_t tag = 0;
    uint64_t message_bytes = 0;
    uint32_t payload_bytes = 0;
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;

// `number`: 0 for the first frame sent on a connection, then 1, 2, ...
HeaderBytes encode(const FrameHeader& header, uint64_t number);

// Finds the headers in a stream of bytes that may come in pieces of any size. The payload between them is the caller's business.
class FrameParser {
public:
    enum class Answer { incomplete, complete, invalid };

    // Takes header bytes from the front of `input`. complete: header() and payload_left() are those of the new frame. invalid:
    // the stream is broken for good; reason() says why. Only while payload_left() is 0.
    Answer take_header(std::span<const std::byte>& input);
    const FrameHeader& header() const { return header_; }
    std::string_view reason() const { return reason_; }

    size_t payload_left() const { return payload_left_; }
    void payload_taken(size_t bytes) { payload_left_ -= bytes; }
    bool between_frames() const { return filled_ == 0 && payload_left_ == 0; }

private:
    Answer refuse(std::string_view reason);

    HeaderBytes bytes_{};
    size_t filled_ = 0;
    FrameHeader header_;
    size_t payload_left_ = 0;
    uint64_t number_ = 0;
    std::string_view reason_;  // static text
};

}  // namespace lockstep::tcp
