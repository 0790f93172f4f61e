// Moves bytes between this rank and the others: TCP, MPI, or queues in memory for tests. Knows nothing of sums and schedules.
//
// One thread, the owner, calls everything but wake() and abort(). Posting allocates nothing: a Transfer belongs to the caller,
// stays where it is from post to `complete()`, and can be posted again. Both sides agree beforehand on who sends what (the plan),
// so there is no handshake; a message that comes before its receive is posted is kept by the transport within a bound, beyond which
// it stops reading from that peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

struct Transfer {
    int32_t peer = -1;
    uint64_t tag = 0;  // messages of one tag between two ranks arrive in order of posting; tags are independent of each other
    std::byte* data = nullptr;
    size_t bytes = 0;
    int32_t urgency = 0;  // sends: larger goes first, also between the chunks of a large message that is under way
    size_t moved = 0;     // set by the transport: bytes sent (may be overwritten) or received (may be read) so far, from the front
    bool complete() const { return moved == bytes; }

    Transfer* next = nullptr;  // the transport's while it is posted
};

class Transport {
public:
    virtual ~Transport() = default;  // leaves nothing behind: no socket, port or thread
    virtual std::string_view name() const = 0;

    // A message has at least one byte. A receive whose message turns out longer or shorter than `bytes` is an error naming both.
    virtual void post_send(Transfer& transfer) = 0;
    virtual void post_receive(Transfer& transfer) = 0;

    // Moves what can be moved. When nothing can, waits for at most `patience_ns` (0: not at all) for something to come, for wake()
    // or for an error. True when bytes have moved. Throws CommError naming the rank when a peer is gone, has aborted, has been
    // silent for longer than the time limit while a transfer with it is posted, or speaks another protocol.
    virtual bool progress(int64_t patience_ns) = 0;

    // This rank computes and gets on; passed to the peers by heartbeats, so a rank that computes for long is not taken for a dead
    // one. Any thread.
    virtual void note_progress() noexcept = 0;
    virtual void wake() noexcept = 0;  // any thread: progress() returns soon
    // Any thread: all peers' progress() ends with a CommError that carries `reason`; so does the next one here. Never throws.
    virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace lockstep
