// A Transport over MPI's point-to-point calls.
//
// MPI's tags are few (32767 are sure) and its counts are 32-bit, a Transfer's are neither. So every message opens with a header of
// its own that carries tag and length as they are: small data travel with it; large data follow in pieces, straight from and into
// the callers' memory, under an MPI tag that the header names and that is used again only after the receiver has taken every piece
// of its predecessor. Headers of one sender keep their order, so do messages of one tag; and messages of different tags do not wait
// for each other.
//
// Peers that compute send signs of life, through note_progress() or while they wait for a message in progress(). MPI does not
// report a lost peer as a value on every system: silence for longer than the time limit does.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/mpi/mpi_module.h"
#include "collectives/transport.h"
#include "core/clock.h"

namespace lockstep {

struct MpiAccess {
    const MpiModule& module;
    std::mutex& mutex;  // held around every call of the module
    int rank = 0;
    int size = 1;
    int last_tag = 32767;
    std::function<void()> give_up;  // MPI cannot be ended in order any more; does not throw
};

struct MpiTransportOptions {
    int64_t timeout_ms = 10'000;  // of silence, while a transfer with that peer is posted
    int64_t connect_timeout_ms = 60'000;
};

class MpiTransport final : public Transport {
public:
    MpiTransport(const MpiAccess& access, const MpiTransportOptions& options);  // collective
    ~MpiTransport() override;                                                   // tells the peers that this rank leaves

    std::string_view name() const override { return "mpi"; }
    void post_send(Transfer& transfer) override;
    void post_receive(Transfer& transfer) override;
    bool progress(int64_t patience_ns) override;
    void note_progress() noexcept override;
    void wake() noexcept override { woken_.store(true); }
    void abort(std::string_view reason) noexcept override;

private:
    static constexpr size_t kInlineBytes = 3968;  // with its header below 4 KiB, the smallest usual limit of eager messages
    static constexpr size_t kPieceBytes = size_t{512} << 10;
    static constexpr uint32_t kWindow = 4;         // pieces of a message under way
    static constexpr size_t kKeptMessages = 4096;  // of a peer, before their receives are posted
    static constexpr int32_t kNoticeTag = 0, kHeaderTag = 1, kFirstDataTag = 2;

    struct Message {
        uint64_t tag = 0;
        uint64_t bytes = 0;
        int64_t data_tag = 0;  // MPI's tag of the pieces; 0: the data are here
        std::byte data[kInlineBytes];
    };
    static constexpr size_t kHeaderBytes = offsetof(Message, data);
    enum class NoticeKind : uint32_t { alive = 1, left, aborted };
    struct Notice {
        NoticeKind kind = NoticeKind::alive;
        uint32_t text_bytes = 0;
        char text[1016] = {};
    };
    // What MPI reads and writes by itself: outlives this object when MPI does not let go of it.
    struct Memory {
        Notice notice_in;
        Notice alive;
        Notice farewell;  // left or aborted
        std::vector<std::unique_ptr<Message>> messages;
    };

    // A large message under way, in either direction.
    struct Stream {
        Transfer* transfer = nullptr;
        bool is_send = false;
        int32_t data_tag = 0;
        size_t next_piece = 0;   // to start
        size_t first_open = 0;   // all before are done
        uint32_t done_mask = 0;  // bit n: piece first_open + n is done
        size_t piece_count() const { return (transfer->bytes + kPieceBytes - 1) / kPieceBytes; }
    };
    enum class SlotUse : uint8_t { notice_in, header_in, life_out, farewell_out, header_out, piece };
    struct Slot {
        SlotUse use = SlotUse::piece;
        int32_t peer = -1;
        Message* message = nullptr;  // header_in, header_out
        Stream* stream = nullptr;    // piece
        size_t piece = 0;
    };
    struct TransferQueue {  // through Transfer::next
        Transfer* first = nullptr;
        Transfer* last = nullptr;
        void push(Transfer& transfer);
        Transfer* take(uint64_t tag);  // the first of this tag; null: none
    };
    struct Peer {
        TransferQueue receives;          // posted, their headers not here yet
        TransferQueue sends;             // posted, not announced: every data tag was in use
        std::deque<Message*> kept;       // headers whose receives are not posted yet
        bool listening = false;          // a receive for its next header is posted
        std::vector<int32_t> free_tags;  // of those given out so far
        int32_t next_tag = kFirstDataTag;
        bool left = false;
        int32_t life_slot = -1;     // of the sign of life under way
        int64_t heard_ns = 0;       // by awake_; 0: not yet
        int64_t busy_since_ns = 0;  // by awake_
        int32_t open_transfers = 0;
    };

    Peer& peer_of(const Transfer& transfer) { return peers_[static_cast<size_t>(transfer.peer)]; }
    const MpiModule& module() const { return access_.module; }
    [[noreturn]] void fail(std::string text);
    void require(int error, int peer);  // 0, or fails with what MPI says
    template <typename Action>
    void for_each_peer(Action action) {
        for (int peer = 0; peer < access_.size; ++peer) {
            if (peer != access_.rank) action(peer);
        }
    }
    template <typename Action>
    void for_each_used_slot(Action action) {  // its number; not for every step
        for (int32_t number = 0; number < static_cast<int32_t>(slots_.size()); ++number) {
            if (std::find(free_slots_.begin(), free_slots_.end(), number) == free_slots_.end()) action(number);
        }
    }

    int32_t take_slot(const Slot& slot);
    Message* take_message();
    void listen_for_notice();
    void listen_for_header(int peer);

    bool look();  // one look at all that has happened: handles it, true when there was something
    void on_event(const MpiEvent& event);
    void on_notice(int peer);
    void on_header(int peer, Message& message);
    void on_piece(Stream& stream, size_t piece);
    void deliver(Transfer& transfer, Message& message);  // the message is free again afterwards
    void open_transfer(Transfer& transfer);
    void close_transfer(Transfer& transfer);

    void announce_waiting(int peer);
    bool announce(Transfer& transfer);  // false: no MPI tag is free
    int32_t take_data_tag(Peer& peer);  // 0: none is free
    void start_stream(Transfer& transfer, bool is_send, int32_t data_tag);
    void start_pieces();
    bool must_give_way(const Stream& stream) const;

    // mpi_transport_life.cc
    void connect(int64_t timeout_ms);
    void hear_all(int64_t timeout_ms);
    bool life_sign_is_due() const;
    bool waits_for_a_peer() const;
    void show_life();  // touches nothing that is the owner's
    void say_farewell(NoticeKind kind, std::string_view text);
    void judge_peers();
    void leave();
    bool holds_data();
    void drain(int64_t timeout_ms);

    const MpiAccess access_;
    const int64_t timeout_ns_;
    std::atomic<bool> woken_ = false;
    std::atomic<int64_t> shown_life_ns_ = 0;
    std::atomic<bool> noted_{false};  // note_progress() was called since the last sign of life

    // Guarded by access_.mutex. Transfers and what belongs to them are touched by the owner only.
    MpiPort* port_ = nullptr;
    std::unique_ptr<Memory> memory_;
    std::vector<Message*> free_messages_;
    std::vector<Slot> slots_;
    std::vector<int32_t> free_slots_;
    std::vector<MpiEvent> events_;                  // scratch of look()
    std::vector<Peer> peers_;                       // by rank
    std::vector<std::unique_ptr<Stream>> streams_;  // sends of greater urgency first
    std::vector<std::unique_ptr<Stream>> spare_streams_;
    std::string fault_;  // what ended it; empty: nothing
    bool moved_ = false;
    bool farewell_said_ = false;
    bool leaving_ = false;
    AwakeClock awake_;
};

}  // namespace lockstep
