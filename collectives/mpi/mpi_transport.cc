#include "collectives/mpi/mpi_transport.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

constexpr int64_t kMillisecond_ns = 1'000'000;
constexpr int64_t kLeaveInDisorderMs = 1000;
constexpr int64_t kNoticeMs = 200;  // for the last words to be on their way

// Between two looks: the processor goes to whoever computes, and the longer nothing comes, the longer.
void pause_after(int64_t waited_ns) {
    constexpr int64_t kYieldOnly_ns = 200'000;
    constexpr int64_t kLongest_ns = 500'000;
    if (waited_ns < kYieldOnly_ns) {
        sched_yield();
    } else {
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(waited_ns / 8, kLongest_ns)));
    }
}

}  // namespace

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

Transfer* MpiTransport::TransferQueue::pop() { return first == nullptr ? nullptr : take(first->tag); }

MpiTransport::MpiTransport(const MpiAccess& access, const MpiTransportOptions& options)
    : access_(access),
      timeout_ns_(options.timeout_ms * kMillisecond_ns),
      memory_(std::make_unique<Memory>()),
      peers_(static_cast<size_t>(access.size)) {
    check(access.last_tag >= kFirstDataTag, "MPI has a tag for data");
    connect(options.connect_timeout_ms);
    {
        const std::lock_guard lock(access_.mutex);
        listen_for_notice();
        for_each_peer([&](int peer) { listen_for_header(peer); });
        show_life();
    }
    hear_all(options.connect_timeout_ms);
}

MpiTransport::~MpiTransport() {
    const bool in_order = [&] {
        const std::lock_guard lock(access_.mutex);
        leave();
        return fault_.empty() && streams_.empty();
    }();
    try {
        drain(in_order ? timeout_ns_ / kMillisecond_ns : kLeaveInDisorderMs);
    } catch (...) {
        // Nothing more can be done about what MPI still holds.
    }
    const std::lock_guard lock(access_.mutex);
    if (!in_order || holds_data()) access_.give_up();
    if (free_slots_.size() == slots_.size()) {
        module().close(port_);
    } else {
        (void)memory_.release();  // MPI may still read it, and write, until it ends: kept as long as the process
    }
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

template <typename Action>
void MpiTransport::for_each_used_slot(Action action) {
    for (int32_t number = 0; number < static_cast<int32_t>(slots_.size()); ++number) {
        if (std::find(free_slots_.begin(), free_slots_.end(), number) == free_slots_.end()) action(number);
    }
}

template <typename Action>
void MpiTransport::for_each_peer(Action action) {
    for (int peer = 0; peer < access_.size; ++peer) {
        if (peer != access_.rank) action(peer);
    }
}

void MpiTransport::connect(int64_t timeout_ms) {
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    const int64_t start_ns = now_ns();
    int32_t ready = 0;
    for (bool is_first = true; ready == 0; is_first = false) {
        {
            const std::lock_guard lock(access_.mutex);
            if (is_first) require(module().open(&port_), -1);
            require(module().opened(port_, &ready), -1);
        }
        if (ready != 0) break;
        if (deadline.expired()) {
            access_.give_up();
            fail(fmt::format("not every rank opened its MPI communicator within {:.1f} s; look at the output of the others",
                             1e-3 * static_cast<double>(timeout_ms)));
        }
        pause_after(now_ns() - start_ns);
    }
}

// Peers may need this rank's help to open their end, and MPI gives it only while it is called: so nobody goes before all are there.
void MpiTransport::hear_all(int64_t timeout_ms) {
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    for (const int64_t start_ns = now_ns();; pause_after(now_ns() - start_ns)) {
        const std::lock_guard lock(access_.mutex);
        look();
        int missing = 0;
        for_each_peer([&](int rank) {
            const Peer& peer = peers_[static_cast<size_t>(rank)];
            missing += peer.heard_ns == 0 || peer.life_slot >= 0 ? 1 : 0;
        });
        if (missing == 0) return;
        if (!deadline.expired()) continue;
        access_.give_up();
        fail(fmt::format("{} of {} ranks did not answer over MPI within {:.1f} s; look at their output", missing, access_.size,
                         1e-3 * static_cast<double>(timeout_ms)));
    }
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
    if (peer.open_transfers++ == 0) peer.busy_since_ns = now_ns();
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
    if (is_of_peer) peers_[static_cast<size_t>(peer)].heard_ns = now_ns();
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

bool MpiTransport::progress(int64_t patience_ns) {
    constexpr int kLooks = 64;  // at a time: peers that send without end must not keep this rank from its own work
    const int64_t start_ns = now_ns();
    while (true) {
        {
            const std::lock_guard lock(access_.mutex);
            for (int count = 0; count < kLooks && look();) ++count;
            if (!fault_.empty()) throw CommError(fault_);
            // An engine looks here all the time: that alone is no sign that this rank gets on.
            if (life_sign_is_due() && (waits_for_a_peer() || noted_.exchange(false))) show_life();
            if (std::exchange(moved_, false)) return true;
            judge_peers();
        }
        const int64_t waited_ns = now_ns() - start_ns;
        if (waited_ns >= patience_ns || woken_.exchange(false)) return false;
        pause_after(waited_ns);
    }
}

void MpiTransport::judge_peers() {
    const int64_t time_ns = now_ns();
    // This rank itself was held up: what its peers did meanwhile it has not seen.
    const bool was_away = time_ns - last_look_ns_ > timeout_ns_ / 2;
    last_look_ns_ = time_ns;
    for_each_peer([&](int rank) {
        Peer& peer = peers_[static_cast<size_t>(rank)];
        if (peer.open_transfers == 0) return;
        if (was_away) peer.busy_since_ns = time_ns;
        const int64_t silent_ns = time_ns - std::max(peer.heard_ns, peer.busy_since_ns);
        // Its last messages may come behind its farewell, which has a tag of its own.
        if (peer.left && silent_ns > 20 * kMillisecond_ns) fail(fmt::format("rank {} has left the job", rank));
        if (silent_ns <= timeout_ns_) return;
        fail(fmt::format("rank {} has shown no progress for {:.1f} s (comm.timeout)", rank, 1e-9 * static_cast<double>(silent_ns)));
    });
}

// ---- signs of life, abort, the end

bool MpiTransport::life_sign_is_due() const {
    return now_ns() - shown_life_ns_.load() > std::min<int64_t>(1000 * kMillisecond_ns, timeout_ns_ / 4);
}

void MpiTransport::show_life() {
    shown_life_ns_.store(now_ns());
    for_each_peer([&](int rank) {
        Peer& peer = peers_[static_cast<size_t>(rank)];
        if (peer.left) return;
        if (peer.life_slot >= 0) {
            int32_t done = 0;
            require(module().test_slot(port_, peer.life_slot, &done), rank);
            if (done == 0) return;
            free_slots_.push_back(peer.life_slot);
        }
        peer.life_slot = take_slot({.use = SlotUse::life_out, .peer = rank});
        require(module().send(port_, peer.life_slot, rank, kNoticeTag, &memory_->alive, offsetof(Notice, text)), rank);
    });
}

bool MpiTransport::waits_for_a_peer() const {
    return std::ranges::any_of(peers_, [](const Peer& peer) { return peer.open_transfers > 0; });
}

void MpiTransport::note_progress() noexcept {
    noted_.store(true);
    if (!life_sign_is_due()) return;
    const std::unique_lock lock(access_.mutex, std::try_to_lock);
    if (!lock.owns_lock() || farewell_said_) return;  // somebody is at it: progress() will show life
    try {
        show_life();
    } catch (const CommError&) {
        // The owner meets it in progress().
    }
}

void MpiTransport::say_farewell(NoticeKind kind, std::string_view text) {
    if (std::exchange(farewell_said_, true)) return;
    Notice& notice = memory_->farewell;
    notice.kind = kind;
    notice.text_bytes = static_cast<uint32_t>(std::min(text.size(), sizeof notice.text));
    std::copy_n(text.begin(), notice.text_bytes, notice.text);
    for_each_peer([&](int rank) {
        if (peers_[static_cast<size_t>(rank)].left) return;
        const int32_t slot = take_slot({.use = SlotUse::farewell_out, .peer = rank});
        const auto bytes = static_cast<int32_t>(offsetof(Notice, text) + notice.text_bytes);
        require(module().send(port_, slot, rank, kNoticeTag, &notice, bytes), rank);
    });
}

void MpiTransport::abort(std::string_view reason) noexcept {
    try {
        const std::lock_guard lock(access_.mutex);
        const std::string text = fmt::format("rank {} gave up: {}", access_.rank, reason);
        if (fault_.empty()) fault_ = text;
        say_farewell(NoticeKind::aborted, text);
    } catch (...) {
        // Peers that were not told find out by the silence.
    }
    wake();
}

void MpiTransport::leave() {
    leaving_ = true;
    try {
        say_farewell(NoticeKind::left, "");
        for_each_used_slot([&](int32_t number) {
            const Slot& slot = slots_[static_cast<size_t>(number)];
            const bool receives = slot.use == SlotUse::notice_in || slot.use == SlotUse::header_in ||
                                  (slot.use == SlotUse::piece && !slot.stream->is_send);
            if (receives) require(module().cancel(port_, number), slot.peer);
        });
    } catch (const CommError& error) {
        fault_ = error.what();
    }
}

// Notices may stay with MPI until a peer that has left looks again, which it does when MPI ends.
bool MpiTransport::holds_data() {
    bool found = false;
    for_each_used_slot([&](int32_t number) {
        const SlotUse use = slots_[static_cast<size_t>(number)].use;
        found = found || (use != SlotUse::life_out && use != SlotUse::farewell_out);
    });
    return found;
}

void MpiTransport::drain(int64_t timeout_ms) {
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    const Deadline notice_deadline = Deadline::after_ms(kNoticeMs);
    for (const int64_t start_ns = now_ns();; pause_after(now_ns() - start_ns)) {
        const std::lock_guard lock(access_.mutex);
        look();
        if (free_slots_.size() == slots_.size() || deadline.expired()) return;
        if (notice_deadline.expired() && !holds_data()) return;
    }
}

}  // namespace lockstep
