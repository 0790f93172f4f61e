#include "collectives/tcp/outbox.h"

#include <algorithm>

#include "core/error.h"

namespace lockstep::tcp {

Outbox::Outbox(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {
    check(chunk_bytes_ > 0 && chunk_bytes_ <= kMaxChunkBytes, "a chunk fits a frame");
}

void Outbox::post(Transfer& transfer) {
    transfer.moved = 0;
    posted_.append(transfer);
}

void Outbox::queue_heartbeat(int64_t age_ns, bool waits) {
    if (said_last_word_ || abort_due_ || goodbye_due_) return;
    heartbeat_due_ = true;
    heartbeat_age_ns_ = age_ns;
    waits_ = waits;
}

void Outbox::queue_abort(std::string_view reason) {
    posted_.clear();
    heartbeat_due_ = goodbye_due_ = false;
    if (said_last_word_) return;
    reason_ = reason.substr(0, kMaxReasonBytes);
    abort_due_ = true;
}

void Outbox::queue_goodbye() {
    heartbeat_due_ = false;
    goodbye_due_ = !said_last_word_;
}

Transfer* Outbox::most_urgent() const {
    Transfer* best = posted_.first();
    for (Transfer* each = best; each != nullptr; each = each->next) {
        if (each->urgency > best->urgency) best = each;
    }
    // Messages of one tag keep their order, so an urgent one pulls its elders.
    return best == nullptr ? nullptr : posted_.find(best->tag);
}

bool Outbox::open_frame() {
    FrameHeader header;
    message_ = nullptr;
    payload_left_ = 0;
    if (abort_due_) {
        header.kind = FrameKind::abort;
        header.payload_bytes = static_cast<uint32_t>(reason_.size());
        payload_ = reinterpret_cast<const std::byte*>(reason_.data());
        abort_due_ = false;
        said_last_word_ = true;
    } else if (heartbeat_due_) {
        header = {.kind = FrameKind::heartbeat, .tag = static_cast<uint64_t>(heartbeat_age_ns_), .message_bytes = waits_ ? 1u : 0u};
        heartbeat_due_ = false;
    } else if (Transfer* message = most_urgent(); message != nullptr) {
        message_ = message;
        const size_t chunk = std::min(chunk_bytes_, message->bytes - message->moved);
        header = {.tag = message->tag, .message_bytes = message->bytes, .payload_bytes = static_cast<uint32_t>(chunk)};
        payload_ = message->data + message->moved;
    } else if (goodbye_due_) {
        header.kind = FrameKind::goodbye;
        goodbye_due_ = false;
        said_last_word_ = true;
    } else {
        return false;
    }
    payload_left_ = header.payload_bytes;
    header_ = encode(header, frame_number_++);
    header_sent_ = 0;
    frame_open_ = true;
    return true;
}

int Outbox::next(Pieces& pieces) {
    if (!frame_open_ && !open_frame()) return 0;
    int count = 0;
    if (header_sent_ < kHeaderBytes) pieces[count++] = {header_.data() + header_sent_, kHeaderBytes - header_sent_};
    if (payload_left_ > 0) pieces[count++] = {const_cast<std::byte*>(payload_), payload_left_};
    return count;
}

size_t Outbox::wrote(size_t bytes) {
    const size_t of_header = std::min(bytes, kHeaderBytes - header_sent_);
    header_sent_ += of_header;
    const size_t of_payload = bytes - of_header;
    check(of_payload <= payload_left_, "no more was written than there was");
    payload_ += of_payload;
    payload_left_ -= of_payload;
    frame_open_ = header_sent_ < kHeaderBytes || payload_left_ > 0;
    if (message_ == nullptr) return 0;
    message_->moved += of_payload;
    // Gone from the list first: its owner may use a complete transfer again at once.
    if (message_->complete() && !posted_.empty()) posted_.remove(*message_);
    return of_payload;
}

}  // namespace lockstep::tcp
