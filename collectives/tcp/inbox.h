// What comes from one peer: takes the bytes of its connection and puts each message where it belongs, into the receive posted
// for it or, when there is none yet, among the kept ones. No socket, no clock: bytes in, transfers filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "collectives/tcp/frame.h"
#include "collectives/tcp/kept_messages.h"
#include "collectives/tcp/transfer_list.h"
#include "collectives/transport.h"

namespace lockstep::tcp {

class Inbox {
public:
    Inbox(int own_rank, int peer, size_t kept_bytes);

    void post(Transfer& transfer);
    bool has_posted() const { return !posted_.empty(); }
    const TransferList& posted() const { return posted_; }

    // Takes bytes from the front of `input` and returns how many; fewer than there are only when stalled, at a fault or after the
    // peer's last frame.
    size_t consume(std::span<const std::byte> input);

    // Where the bytes that come next belong when they are payload, else empty. Reading straight to this place and then telling so
    // saves the copy of consume().
    std::span<std::byte> payload_room();
    void payload_filled(size_t bytes);

    // A message that nobody has asked for is next and the kept ones fill their bound: read on after the next post().
    bool stalled() { return parser_.payload_left() > 0 && payload_room().empty(); }

    uint64_t data_bytes() const { return data_bytes_; }       // payload of messages so far
    uint64_t heartbeat_count() const { return heartbeats_; }  // so far; the last one said:
    int64_t heartbeat_age_ns() const { return heartbeat_age_ns_; }
    bool peer_waits() const { return peer_waits_; }

    bool peer_left() const { return peer_left_; }                // its goodbye was the last frame
    const std::string& abort_reason() const { return reason_; }  // empty: it has not aborted
    const std::string& fault() const { return fault_; }          // empty, or what is wrong with this stream for good
    bool between_frames() const { return parser_.between_frames(); }

    void drop_posted() { posted_.clear(); }

private:
    void begin_frame();
    void begin_data(const FrameHeader& header);
    void note_mismatch(uint64_t expected_bytes, uint64_t actual_bytes, uint64_t tag);

    const int own_rank_;
    const int peer_;
    FrameParser parser_;
    TransferList posted_;
    KeptMessages kept_;
    Transfer* into_ = nullptr;        // the running data frame's place,
    KeptBlock* into_kept_ = nullptr;  // or this one; both null: not begun yet
    std::string incoming_reason_;     // of an abort frame that is still coming
    uint64_t data_bytes_ = 0;
    uint64_t heartbeats_ = 0;
    int64_t heartbeat_age_ns_ = 0;
    bool peer_waits_ = false;
    bool peer_left_ = false;
    std::string reason_;
    std::string fault_;
};

}  // namespace lockstep::tcp
