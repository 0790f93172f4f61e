#include "collectives/tcp/kept_messages.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/error.h"

namespace lockstep::tcp {

KeptMessages::KeptMessages(size_t bytes)
    : block_count_(std::max<size_t>(bytes / KeptBlock::kBlockBytes, 1)),
      free_count_(block_count_),
      storage_(new std::byte[block_count_ * sizeof(KeptBlock)]) {}

KeptBlock* KeptMessages::take_block() {
    if (free_count_ == 0) return nullptr;
    free_count_ -= 1;
    KeptBlock* block = free_;
    if (block != nullptr) {
        free_ = block->next_block;
    } else {
        block = new (storage_.get() + untouched_ * sizeof(KeptBlock)) KeptBlock;
        untouched_ += 1;
    }
    block->next_block = nullptr;
    return block;
}

void KeptMessages::give_back(KeptBlock* block) {
    block->next_block = free_;
    free_ = block;
    free_count_ += 1;
}

KeptBlock* KeptMessages::find(uint64_t tag) const {
    KeptBlock* message = first_;
    while (message != nullptr && message->tag != tag) message = message->next_message;
    return message;
}

KeptBlock* KeptMessages::incoming(uint64_t tag, uint64_t message_bytes) {
    // Messages of a tag come one after the other: at most one is incomplete.
    for (KeptBlock* message = first_; message != nullptr; message = message->next_message) {
        if (message->tag == tag && message->received_bytes < message->message_bytes) return message;
    }
    KeptBlock* message = take_block();
    if (message == nullptr) return nullptr;
    message->last_block = message;
    message->next_message = nullptr;
    message->tag = tag;
    message->message_bytes = message_bytes;
    message->received_bytes = 0;
    message->capacity_bytes = KeptBlock::kRoomBytes;
    (first_ == nullptr ? first_ : last_->next_message) = message;
    last_ = message;
    return message;
}

std::span<std::byte> KeptMessages::room(KeptBlock& message, size_t limit) {
    if (message.received_bytes == message.capacity_bytes) {
        KeptBlock* block = take_block();
        if (block == nullptr) return {};
        message.last_block->next_block = block;
        message.last_block = block;
        message.capacity_bytes += KeptBlock::kRoomBytes;
    }
    const size_t free_bytes = message.capacity_bytes - message.received_bytes;
    return {message.last_block->room + (KeptBlock::kRoomBytes - free_bytes), std::min(limit, free_bytes)};
}

void KeptMessages::move_out(KeptBlock& message, std::byte* data) {
    KeptBlock* before = nullptr;
    for (KeptBlock* each = first_; each != &message; each = each->next_message) {
        check(each != nullptr, "the message is kept here");
        before = each;
    }
    (before == nullptr ? first_ : before->next_message) = message.next_message;
    if (last_ == &message) last_ = before;
    size_t left = message.received_bytes;
    for (KeptBlock* block = &message; block != nullptr;) {
        const size_t piece = std::min(left, KeptBlock::kRoomBytes);
        std::memcpy(data, block->room, piece);
        data += piece;
        left -= piece;
        KeptBlock* next = block->next_block;
        give_back(block);
        block = next;
    }
}

}  // namespace lockstep::tcp
