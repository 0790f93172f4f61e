#include "collectives/mpi/mpi_transport.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

void MpiTransport::TransferQueue::push(Transfer& transfer) {
    transfer.next = nullptr;
    (first == nullptr ? first : last->next) = &transfer;
    last = &transfer;
}

Transfer* MpiTransport::TransferQueue::take(uint64_t tag) {
    Transfer* before = nullptr;
    for (Transfer* each = first; each != nullptr; before = each, each = each->next) {
        if (each->tag != tag) continue;
        (before == nullptr ? first : before->next) = each->next;
        if (last == each) last = before;
        return each;
    }
    return nullptr;
}

void MpiTransport::fail(std::string text) {
    fault_ = std::move(text);
    throw CommError(fault_);
}

void MpiTransport::require(int error, int peer) {
    if (error == 0) return;
    std::array<char, 512> text{};
    module().describe(error, text.data(), text.size());
    const std::string with = peer < 0 ? "all ranks" : fmt::format("rank {}", peer);
    fail(fmt::format("MPI reports `{}` in a transfer with {}", text.data(), with));
}

int32_t MpiTransport::take_slot(const Slot& slot) {
    if (free_slots_.empty()) {
        free_slots_.push_back(static_cast<int32_t>(slots_.size()));
        slots_.emplace_back();
    }
    const int32_t number = free_slots_.back();
    free_slots_.pop_back();
    slots_[static_cast<size_t>(number)] = slot;
    return number;
}

MpiTransport::Message* MpiTransport::take_message() {
    if (free_messages_.empty()) {
        memory_->messages.push_back(std::make_unique<Message>());
        free_messages_.push_back(memory_->messages.back().get());
    }
    Message* const message = free_messages_.back();
    free_messages_.pop_back();
    return message;
}

void MpiTransport::listen_for_notice() {
    const int32_t slot = take_slot({.use = SlotUse::notice_in});
    require(module().receive(port_, slot, kAnyPeer, kNoticeTag, &memory_->notice_in, sizeof(Notice)), kAnyPeer);
}

void MpiTransport::listen_for_header(int peer) {
    Message* const message = take_message();
    const int32_t slot = take_slot({.use = SlotUse::header_in, .peer = peer, .message = message});
    peers_[static_cast<size_t>(peer)].listening = true;
    require(module().receive(port_, slot, peer, kHeaderTag, message, sizeof(Message)), peer);
}

void MpiTransport::open_transfer(Transfer& transfer) {
    check(transfer.peer >= 0 && transfer.peer < access_.size && transfer.peer != access_.rank, "a transfer is with another rank");
    check(transfer.bytes > 0, "a message has at least one byte");
    Peer& peer = peer_of(transfer);
    if (peer.open_transfers++ == 0) peer.busy_since_ns = awake_.read();
    transfer.moved = 0;
}

void MpiTransport::close_transfer(Transfer& transfer) {
    --peer_of(transfer).open_transfers;
    transfer.moved = transfer.bytes;
    moved_ = true;
}

// ---- sending

void MpiTransport::post_send(Transfer& transfer) {
    const std::lock_guard lock(access_.mutex);
    open_transfer(transfer);
    peer_of(transfer).sends.push(transfer);
    announce_waiting(transfer.peer);
}

// In order of posting: a message must not overtake one of the same tag.
void MpiTransport::announce_waiting(int peer) {
    TransferQueue& waiting = peers_[static_cast<size_t>(peer)].sends;
    while (waiting.first != nullptr) {
        Transfer& transfer = *waiting.first;
        Transfer* const next = transfer.next;
        if (!announce(transfer)) return;
        waiting.first = next;
    }
}

bool MpiTransport::announce(Transfer& transfer) {
    const bool is_small = transfer.bytes <= kInlineBytes;
    const int32_t data_tag = is_small ? 0 : take_data_tag(peer_of(transfer));
    if (!is_small && data_tag == 0) return false;
    Message* const message = take_message();
    message->tag = transfer.tag;
    message->bytes = transfer.bytes;
    message->data_tag = data_tag;
    if (is_small) std::memcpy(message->data, transfer.data, transfer.bytes);
    const auto bytes = static_cast<int32_t>(kHeaderBytes + (is_small ? transfer.bytes : 0));
    const int32_t slot = take_slot({.use = SlotUse::header_out, .peer = transfer.peer, .message = message});
    require(module().send(port_, slot, transfer.peer, kHeaderTag, message, bytes), transfer.peer);
    if (is_small) {
        close_transfer(transfer);  // a copy is on its way
    } else {
        start_stream(transfer, true, data_tag);
    }
    return true;
}

int32_t MpiTransport::take_data_tag(Peer& peer) {
    if (!peer.free_tags.empty()) {
        const int32_t tag = peer.free_tags.back();
        peer.free_tags.pop_back();
        return tag;
    }
    return peer.next_tag <= access_.last_tag ? peer.next_tag++ : 0;
}

void MpiTransport::start_stream(Transfer& transfer, bool is_send, int32_t data_tag) {
    if (spare_streams_.empty()) spare_streams_.push_back(std::make_unique<Stream>());
    std::unique_ptr<Stream> stream = std::move(spare_streams_.back());
    spare_streams_.pop_back();
    *stream = {.transfer = &transfer, .is_send = is_send, .data_tag = data_tag};
    const auto behind = std::find_if(streams_.begin(), streams_.end(),
                                     [&](const auto& each) { return each->transfer->urgency < transfer.urgency; });
    streams_.insert(behind, std::move(stream));
    start_pieces();
}

// A send gives way to a more urgent one to the same peer as soon as the receiver takes that one: before, it would wait for nothing.
bool MpiTransport::must_give_way(const Stream& stream) const {
    return std::any_of(streams_.begin(), streams_.end(), [&](const auto& other) {
        const bool flows = other->first_open > 0 || other->done_mask != 0;
        return other->is_send && other->transfer->peer == stream.transfer->peer &&
               other->transfer->urgency > stream.transfer->urgency && flows && other->next_piece < other->piece_count();
    });
}

void MpiTransport::start_pieces() {
    for (const auto& stream : streams_) {
        const Transfer& transfer = *stream->transfer;
        if (stream->is_send && must_give_way(*stream)) continue;
        while (stream->next_piece < std::min(stream->piece_count(), stream->first_open + kWindow)) {
            const size_t piece = stream->next_piece++;
            std::byte* const data = transfer.data + piece * kPieceBytes;
            const auto bytes = static_cast<int32_t>(std::min(kPieceBytes, transfer.bytes - piece * kPieceBytes));
            const int32_t slot = take_slot({.use = SlotUse::piece, .peer = transfer.peer, .stream = stream.get(), .piece = piece});
            // Matched: when the last piece is done, the receiver has taken all of them, and their tag can be used again.
            const auto start = stream->is_send ? module().send_matched(port_, slot, transfer.peer, stream->data_tag, data, bytes)
                                               : module().receive(port_, slot, transfer.peer, stream->data_tag, data, bytes);
            require(start, transfer.peer);
        }
    }
}

// ---- receiving

void MpiTransport::post_receive(Transfer& transfer) {
    const std::lock_guard lock(access_.mutex);
    open_transfer(transfer);
    Peer& peer = peer_of(transfer);
    const auto here =
        std::find_if(peer.kept.begin(), peer.kept.end(), [&](const Message* each) { return each->tag == transfer.tag; });
    if (here == peer.kept.end()) return peer.receives.push(transfer);
    Message* const message = *here;
    peer.kept.erase(here);
    deliver(transfer, *message);
    if (!peer.listening) listen_for_header(transfer.peer);
}

void MpiTransport::on_header(int peer_rank, Message& message) {
    Peer& peer = peers_[static_cast<size_t>(peer_rank)];
    peer.listening = false;
    if (Transfer* const transfer = peer.receives.take(message.tag); transfer != nullptr) {
        deliver(*transfer, message);
    } else {
        peer.kept.push_back(&message);
    }
    if (peer.kept.size() < kKeptMessages) listen_for_header(peer_rank);
}

void MpiTransport::deliver(Transfer& transfer, Message& message) {
    free_messages_.push_back(&message);
    if (message.bytes != transfer.bytes) {
        fail(fmt::format("rank {} sends {} bytes where rank {} expects {} (tag {})", transfer.peer, message.bytes, access_.rank,
                         transfer.bytes, transfer.tag));
    }
    if (message.data_tag != 0) return start_stream(transfer, false, static_cast<int32_t>(message.data_tag));
    std::memcpy(transfer.data, message.data, transfer.bytes);
    close_transfer(transfer);
}

void MpiTransport::on_piece(Stream& stream, size_t piece) {
    Transfer& transfer = *stream.transfer;
    stream.done_mask |= 1U << (piece - stream.first_open);
    for (; (stream.done_mask & 1U) != 0; stream.done_mask >>= 1U) ++stream.first_open;
    transfer.moved = std::min(stream.first_open * kPieceBytes, transfer.bytes);
    moved_ = true;
    if (!transfer.complete()) return;
    close_transfer(transfer);
    if (stream.is_send) peer_of(transfer).free_tags.push_back(stream.data_tag);
    const auto place = std::find_if(streams_.begin(), streams_.end(), [&](const auto& each) { return each.get() == &stream; });
    spare_streams_.push_back(std::move(*place));
    streams_.erase(place);
    announce_waiting(transfer.peer);
}

// ---- what happens

bool MpiTransport::look() {
    const MpiEvent* events = nullptr;
    int32_t count = 0;
    require(module().test(port_, &events, &count), kAnyPeer);
    events_.assign(events, events + count);  // handling one may start transfers, and the module's list may move
    for (const MpiEvent& event : events_) on_event(event);
    if (count > 0 && !leaving_) start_pieces();
    return count > 0;
}

void MpiTransport::on_event(const MpiEvent& event) {
    const Slot slot = slots_[static_cast<size_t>(event.slot)];
    free_slots_.push_back(event.slot);
    if (leaving_) return;
    const int peer = slot.peer == kAnyPeer ? event.peer : slot.peer;
    require(event.error, peer);
    // What completes without the peer is no sign of it.
    const bool is_of_peer = slot.use == SlotUse::notice_in || slot.use == SlotUse::header_in || slot.use == SlotUse::piece;
    if (is_of_peer) peers_[static_cast<size_t>(peer)].heard_ns = awake_.read();
    switch (slot.use) {
        case SlotUse::notice_in:
            return on_notice(peer);
        case SlotUse::header_in:
            return on_header(peer, *slot.message);
        case SlotUse::life_out:
            peers_[static_cast<size_t>(peer)].life_slot = -1;
            return;
        case SlotUse::farewell_out:
            return;
        case SlotUse::header_out:
            return free_messages_.push_back(slot.message);
        case SlotUse::piece:
            return on_piece(*slot.stream, slot.piece);
    }
}

void MpiTransport::on_notice(int peer) {
    const Notice& notice = memory_->notice_in;
    if (notice.kind == NoticeKind::left) peers_[static_cast<size_t>(peer)].left = true;
    if (notice.kind == NoticeKind::aborted && fault_.empty()) {
        fault_.assign(notice.text, std::min<size_t>(notice.text_bytes, sizeof notice.text));
    }
    listen_for_notice();
}

}  // namespace lockstep
