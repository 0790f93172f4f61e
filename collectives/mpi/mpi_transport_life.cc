// How an MpiTransport comes, waits and goes: all ranks meet, peers show that they live, whoever is silent for too long is named,
// and nothing is torn away from MPI at the end.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "collectives/mpi/mpi_transport.h"
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

MpiTransport::MpiTransport(const MpiAccess& access, const MpiTransportOptions& options)
    : access_(access),
      timeout_ns_(options.timeout_ms * kMillisecond_ns),
      memory_(std::make_unique<Memory>()),
      peers_(static_cast<size_t>(access.size)),
      awake_(timeout_ns_ / 10) {
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
    const int64_t awake_ns = awake_.read();
    for_each_peer([&](int rank) {
        Peer& peer = peers_[static_cast<size_t>(rank)];
        if (peer.open_transfers == 0) return;
        const int64_t silent_ns = awake_ns - std::max(peer.heard_ns, peer.busy_since_ns);
        // Its last messages may come behind its farewell, which has a tag of its own.
        if (peer.left && silent_ns > 20 * kMillisecond_ns) fail(fmt::format("rank {} has left the job", rank));
        if (silent_ns <= timeout_ns_) return;
        fail(fmt::format("rank {} has shown no progress for {:.1f} s (comm.timeout)", rank, 1e-9 * static_cast<double>(silent_ns)));
    });
}

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
