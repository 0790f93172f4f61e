// Messages of one peer that have come before their receive was posted. A fixed number of blocks, allocated once (memory that is
// never needed is never touched); when they are used up the transport stops reading from that peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep::tcp {

// The first block of a message carries what is known of it.
struct KeptBlock {
    static constexpr size_t kBlockBytes = 4096;
    static constexpr size_t kRoomBytes = kBlockBytes - 56;

    KeptBlock* next_block;    // of this message
    KeptBlock* last_block;    // of this message; first block only, as what follows
    KeptBlock* next_message;  // in order of arrival
    uint64_t tag;
    uint64_t message_bytes;
    uint64_t received_bytes;
    uint64_t capacity_bytes;  // of its blocks
    std::byte room[kRoomBytes];
};
static_assert(sizeof(KeptBlock) == KeptBlock::kBlockBytes);

class KeptMessages {
public:
    explicit KeptMessages(size_t bytes);  // at least one block

    // The oldest message with this tag; nullptr: none.
    KeptBlock* find(uint64_t tag) const;
    // The message with this tag that is still coming, or a new one; nullptr when there is no block left for a new one.
    KeptBlock* incoming(uint64_t tag, uint64_t message_bytes);
    // Where the message's next bytes go, at most `limit`; empty when no block is left.
    std::span<std::byte> room(KeptBlock& message, size_t limit);
    void filled(KeptBlock& message, size_t bytes) { message.received_bytes += bytes; }

    // Copies what has come of the message to `data` and forgets it.
    void move_out(KeptBlock& message, std::byte* data);

    size_t block_count() const { return block_count_; }
    size_t free_count() const { return free_count_; }

private:
    KeptBlock* take_block();
    void give_back(KeptBlock* block);

    size_t block_count_ = 0;
    size_t free_count_ = 0;
    size_t untouched_ = 0;                  // blocks from here on have never been used
    std::unique_ptr<std::byte[]> storage_;  // raw, so that it is not written to before it is needed
    KeptBlock* free_ = nullptr;
    KeptBlock* first_ = nullptr;
    KeptBlock* last_ = nullptr;
};

}  // namespace lockstep::tcp
