// How the ranks of a node walk through operations together. Each shows the others, in flags that it alone writes, which operation
// it has come to, which steps of a staged operation it has made and which operations are done with; the others look. Nothing here
// waits: the all_...() answer at once, and look(), called now and then while waiting, ends what would never end: by the abort
// word, by a peer's death, or after `timeout_ms` without a peer's progress. One thread, but for abort().
//
// Ranks are local here (0 .. size-1 on this node); messages name them by their rank in the job.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/operation.h"
#include "collectives/shared_memory/node_segment.h"
#include "collectives/shared_memory/peer_watch.h"
#include "core/clock.h"
#include "core/world.h"

namespace lockstep {

class LocalGroup {
public:
    // The ranks have joined the segment. `flight_record_path`: CommunicatorOptions.
    LocalGroup(std::shared_ptr<NodeSegment> segment, const World& world, int64_t timeout_ms, std::string flight_record_path);
    ~LocalGroup();  // tells the peers that this rank has left in order

    int rank() const { return rank_; }
    int size() const { return size_; }
    bool shares_cores() const { return shares_cores_; }
    bool any_shares_cores() const { return any_shares_cores_; }  // of all ranks; they all know the same
    NodeSegment& segment() { return *segment_; }
    FlightRing& flights() { return own_block_.flights; }  // of this rank
    const FlightRing& flights_of(int rank) const { return segment_->block(rank).flights; }

    // "This rank has come to this operation." Operations are announced in order, at most kAnnouncements before the last that all
    // are done with (all_done). `payload`, up to Announcement::kInlineBytes, can be read by those for whom all_announced is true.
    void announce(uint64_t sequence, uint64_t plan_hash, std::span<const std::byte> payload);
    const std::byte* payload_of(int rank, uint64_t sequence) const { return announcement(rank, sequence).payload; }
    // CommError, told to all peers, naming both sides, when a rank has come to another operation at this place in the order.
    bool all_announced(uint64_t sequence, uint64_t plan_hash);

    // "This rank has made one more step." In step with all: every rank makes the same steps.
    void announce_phase() { own_block_.phase.store(++phase_, std::memory_order_release); }
    uint64_t phase() const { return phase_; }  // steps of this rank
    bool all_in_phase();                       // all have made as many steps as this one

    // "This rank has read and written all it will of the operations up to this one."
    void announce_done(uint64_t sequence) { own_block_.done.store(sequence, std::memory_order_release); }
    bool all_done(uint64_t sequence);

    // A sign of life: the peers' time limits start anew.
    void show_progress() noexcept { own_block_.progress.fetch_add(1, std::memory_order_relaxed); }

    void throw_if_aborted(const CollectiveLabel& label) const {
        if (segment_->control().abort_state.load(std::memory_order_acquire) != kNotAborted) [[unlikely]]
            throw_abort(label);
    }
    // Looks after what the last all_...() was missing. `label`: what this rank waits in, since `start_ns`. Cheap; call it as often
    // as you like. Silence is counted only while this rank is looking, so its own long absence is not blamed on others.
    void look(const CollectiveLabel& label, int64_t start_ns);
    void nothing_awaited() { awaited_.what = Awaited::nothing; }

    void abort(std::string_view reason) noexcept;  // any thread

private:
    struct Awaited {
        enum What : uint8_t { nothing, announcement, phase, done } what = nothing;
        uint64_t value = 0;  // sequence or phase
        uint64_t tag = 0;
    };

    static uint64_t tag_of(uint64_t sequence, uint64_t plan_hash) { return plan_hash >> 32 << 32 | (sequence & 0xffffffff); }
    Announcement& announcement(int rank, uint64_t sequence) const {
        return segment_->block(rank).announcements[sequence % RankBlock::kAnnouncements];
    }
    int name_of(int rank) const { return first_rank_ + rank; }
    bool lacks(int peer) const;  // what is awaited
    void check_peer(int peer, int64_t elapsed_ns, const CollectiveLabel& label, int64_t waited_ns);
    [[noreturn]] void fail_disagreement(int peer, uint64_t sequence);
    [[noreturn]] void fail(const std::string& text, const CollectiveLabel& label);
    [[noreturn]] void throw_abort(const CollectiveLabel& label) const;
    bool tell_all(std::string_view text) noexcept;  // false: another failure was first

    const std::shared_ptr<NodeSegment> segment_;
    const int rank_;
    const int size_;
    const int first_rank_;  // name in the job of local rank 0
    const int64_t timeout_ns_;
    const std::string flight_record_path_;
    RankBlock& own_block_;
    PeerWatch watch_;
    bool shares_cores_ = false;
    bool any_shares_cores_ = false;

    uint64_t phase_ = 0;
    uint64_t known_done_ = 0;  // all ranks are done with the operations up to here
    Awaited awaited_;
    int64_t last_look_ns_ = 0;
    AwakeClock awake_;
    std::vector<int64_t> silent_since_ns_;  // by rank: without what is awaited and without a sign of life; by awake_
    std::vector<uint64_t> seen_progress_;   // by rank
};

// Called in every poll, so they are here.

inline bool LocalGroup::all_announced(uint64_t sequence, uint64_t plan_hash) {
    const uint64_t expected = tag_of(sequence, plan_hash);
    for (int peer = 0; peer < size_; ++peer) {
        const uint64_t tag = announcement(peer, sequence).tag.load(std::memory_order_acquire);
        if (tag == expected) continue;
        if (((tag ^ expected) & 0xffffffff) == 0) fail_disagreement(peer, sequence);
        awaited_ = {Awaited::announcement, sequence, expected};
        return false;
    }
    return true;
}

inline bool LocalGroup::all_in_phase() {
    for (int peer = 0; peer < size_; ++peer) {
        if (segment_->block(peer).phase.load(std::memory_order_acquire) >= phase_) continue;
        awaited_ = {Awaited::phase, phase_, 0};
        return false;
    }
    return true;
}

inline bool LocalGroup::all_done(uint64_t sequence) {
    if (known_done_ >= sequence) return true;
    uint64_t least = UINT64_MAX;
    for (int peer = 0; peer < size_; ++peer) least = std::min(least, segment_->block(peer).done.load(std::memory_order_acquire));
    known_done_ = least;
    if (least >= sequence) return true;
    awaited_ = {Awaited::done, sequence, 0};
    return false;
}

}  // namespace lockstep
