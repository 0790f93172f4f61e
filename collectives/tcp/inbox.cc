#include "collectives/tcp/inbox.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep::tcp {

Inbox::Inbox(int own_rank, int peer, size_t kept_bytes) : own_rank_(own_rank), peer_(peer), kept_(kept_bytes) {}

void Inbox::note_mismatch(uint64_t expected_bytes, uint64_t actual_bytes, uint64_t tag) {
    fault_ = fmt::format(
        "rank {} sends a message of {} bytes where rank {} expects {} bytes (tag {:#x}): the ranks' plans differ; give all ranks "
        "the "
        "same program, configuration and data",
        peer_, actual_bytes, own_rank_, expected_bytes, tag);
}

void Inbox::post(Transfer& transfer) {
    transfer.moved = 0;
    // While a receive with this tag is posted nothing is kept under it, so what is kept belongs to this one.
    if (KeptBlock* message = kept_.find(transfer.tag); message != nullptr && fault_.empty()) {
        if (message->message_bytes != transfer.bytes) {
            note_mismatch(transfer.bytes, message->message_bytes, transfer.tag);
        } else {
            transfer.moved = message->received_bytes;
            kept_.move_out(*message, transfer.data);
            if (into_kept_ == message) {
                into_kept_ = nullptr;
                into_ = &transfer;
            }
        }
    }
    if (transfer.complete()) return;
    posted_.append(transfer);
    // A frame that had found no block may be this one's.
    if (into_ == nullptr && into_kept_ == nullptr && parser_.payload_left() > 0 && parser_.header().kind == FrameKind::data) {
        begin_data(parser_.header());
    }
}

size_t Inbox::consume(std::span<const std::byte> input) {
    const size_t offered = input.size();
    while (!input.empty() && fault_.empty() && !peer_left_ && reason_.empty()) {
        if (parser_.payload_left() > 0) {
            const std::span<std::byte> room = payload_room();
            if (room.empty()) break;
            const size_t piece = std::min(room.size(), input.size());
            std::memcpy(room.data(), input.data(), piece);
            payload_filled(piece);
            input = input.subspan(piece);
            continue;
        }
        switch (parser_.take_header(input)) {
            case FrameParser::Answer::incomplete:
                break;
            case FrameParser::Answer::complete:
                begin_frame();
                break;
            case FrameParser::Answer::invalid:
                fault_ = fmt::format(
                    "rank {} sent rank {} {}: the connection is damaged or another program wrote into it; restart from the last "
                    "checkpoint",
                    peer_, own_rank_, parser_.reason());
                break;
        }
    }
    return offered - input.size();
}

void Inbox::begin_frame() {
    const FrameHeader& header = parser_.header();
    switch (header.kind) {
        case FrameKind::data:
            begin_data(header);
            break;
        case FrameKind::heartbeat:
            heartbeats_ += 1;
            heartbeat_age_ns_ = static_cast<int64_t>(std::min<uint64_t>(header.tag, std::numeric_limits<int64_t>::max()));
            peer_waits_ = header.message_bytes != 0;
            break;
        case FrameKind::abort:
            incoming_reason_.resize(header.payload_bytes);
            if (header.payload_bytes == 0) reason_ = fmt::format("rank {} gave up without a reason", peer_);
            break;
        case FrameKind::goodbye:
            peer_left_ = true;
            break;
    }
}

void Inbox::begin_data(const FrameHeader& header) {
    into_kept_ = nullptr;
    into_ = posted_.find(header.tag);
    uint64_t bytes = 0;
    uint64_t received = 0;
    if (into_ != nullptr) {
        bytes = into_->bytes;
        received = into_->moved;
    } else {
        into_kept_ = kept_.incoming(header.tag, header.message_bytes);
        if (into_kept_ == nullptr) return;  // stalled
        bytes = into_kept_->message_bytes;
        received = into_kept_->received_bytes;
    }
    if (bytes != header.message_bytes) {
        note_mismatch(bytes, header.message_bytes, header.tag);
    } else if (header.payload_bytes > bytes - received) {
        note_mismatch(bytes, received + header.payload_bytes, header.tag);
    }
}

std::span<std::byte> Inbox::payload_room() {
    const size_t left = parser_.payload_left();
    if (left == 0 || !fault_.empty()) return {};
    if (parser_.header().kind == FrameKind::abort) {
        return std::as_writable_bytes(std::span(incoming_reason_)).last(left);
    }
    if (into_ != nullptr) return {into_->data + into_->moved, left};
    return into_kept_ != nullptr ? kept_.room(*into_kept_, left) : std::span<std::byte>();
}

void Inbox::payload_filled(size_t bytes) {
    parser_.payload_taken(bytes);
    const bool frame_ends = parser_.payload_left() == 0;
    if (parser_.header().kind == FrameKind::abort) {
        if (frame_ends) reason_ = std::move(incoming_reason_);
        return;
    }
    data_bytes_ += bytes;
    if (into_ != nullptr) {
        into_->moved += bytes;
        if (into_->complete()) posted_.remove(*into_);
    } else {
        kept_.filled(*into_kept_, bytes);
    }
    if (frame_ends) {
        into_ = nullptr;
        into_kept_ = nullptr;
    }
}

}  // namespace lockstep::tcp
