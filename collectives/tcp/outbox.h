// What goes to one peer: cuts the posted messages into frames and says which bytes come next. Between two frames the most urgent
// message goes first, and a word of the transport's own (heartbeat, abort, goodbye) before all. No socket, no clock.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/tcp/frame.h"
#include "collectives/tcp/transfer_list.h"
#include "collectives/transport.h"

namespace lockstep::tcp {

class Outbox {
public:
    explicit Outbox(size_t chunk_bytes);

    void post(Transfer& transfer);
    bool has_posted() const { return !posted_.empty(); }

    void queue_heartbeat(int64_t age_ns, bool waits);  // takes the place of one that has not gone yet
    void queue_abort(std::string_view reason);         // the frame under way is finished, posted messages are dropped
    void queue_goodbye();                              // after the posted messages

    // The bytes to write next, in up to two pieces; the count of pieces is 0 when there is nothing.
    using Pieces = std::array<iovec, 2>;
    int next(Pieces& pieces);
    // Another message is posted behind the frame under way: the kernel may put them into one packet.
    bool more_follows() const { return message_ != nullptr && posted_.first() != nullptr && posted_.first()->next != nullptr; }
    // How many of them have been written. Returns how many were message payload.
    size_t wrote(size_t bytes);

    bool empty() const { return !frame_open_ && posted_.empty() && !heartbeat_due_ && !abort_due_ && !goodbye_due_; }
    void drop_posted() { posted_.clear(); }
    bool mid_message_frame() const { return frame_open_ && message_ != nullptr; }

private:
    bool open_frame();
    Transfer* most_urgent() const;

    const size_t chunk_bytes_;
    TransferList posted_;
    uint64_t frame_number_ = 0;

    bool frame_open_ = false;
    HeaderBytes header_{};
    size_t header_sent_ = 0;
    Transfer* message_ = nullptr;         // whose chunk is under way; null in a frame of the transport's own
    const std::byte* payload_ = nullptr;  // the rest of the payload
    size_t payload_left_ = 0;

    bool heartbeat_due_ = false;
    int64_t heartbeat_age_ns_ = 0;
    bool waits_ = false;
    bool abort_due_ = false;
    std::string reason_;
    bool goodbye_due_ = false;
    bool said_last_word_ = false;
};

}  // namespace lockstep::tcp
