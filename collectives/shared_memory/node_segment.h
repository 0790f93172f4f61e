// The memory that the ranks of one node share: a nameless file (memfd) made by local rank 0 and handed to the others over a unix
// socket in the abstract namespace, so nothing is left behind however the processes end.
//
//   control | common | block of local rank 0 | block of local rank 1 | ...      block: flags, copies, staging, flight record,
//   region
//
// Gradients are born in the regions; equal offsets in all regions belong together. Each rank touches its own block first, so the
// memory lies on the NUMA node it is bound to, and an equal part of the common memory, which is everybody's.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/shared_memory/flight_recorder.h"
#include "core/world.h"
#include "net/socket.h"
#include "net/store.h"

namespace lockstep {

// "I have come to operation s, and it is this one", with up to kInlineBytes of data. Two cache lines, which processors fetch in
// pairs.
struct alignas(128) Announcement {
    static constexpr size_t kInlineBytes = 120;
    // Lower half of the sequence, upper half of the plan hash: arrival and agreement in one comparison. A slot's previous content
    // is always the operation kAnnouncements before, so a sequence cannot be mistaken after 2^32 operations either.
    std::atomic<uint64_t> tag;
    std::byte payload[kInlineBytes];
};

// What one rank shows the others. One writer each (the rank itself); groups that change at different times are 128 bytes apart.
struct RankBlock {
    static constexpr size_t kAnnouncements = 64;
    static constexpr size_t kCopyBytes = size_t{16} << 10;
    static constexpr size_t kCopies = 4;
    static constexpr size_t kStagingBytes = size_t{256} << 10;  // one half; both halves of all ranks stay in a shared cache

    Announcement announcements[kAnnouncements];  // of operation s in slot s % kAnnouncements
    // All operations up to this one need nothing of this rank any more, and this rank reads nothing of them any more. Never reset.
    alignas(128) std::atomic<uint64_t> done;
    alignas(128) std::atomic<uint64_t> phase;     // counts the steps of staged operations; never reset
    alignas(128) std::atomic<uint64_t> progress;  // counts signs of life of this rank's compute thread
    alignas(128) cpu_set_t cores;                 // that this rank may run on; written before it joins
    alignas(128) std::byte copies[kCopies][kCopyBytes];
    alignas(4096) std::byte staging[2][kStagingBytes];
    FlightRing flights;
};

enum RankState : uint32_t { kRankAbsent = 0, kRankJoined = 1, kRankLeft = 2, kRankWithoutMemory = 3 };
enum AbortState : uint32_t { kNotAborted = 0, kAbortBeingWritten = 1, kAborted = 2 };

struct SegmentControl {
    static constexpr size_t kReasonBytes = 1024;
    static constexpr int kMostRanks = 1024;
    struct alignas(8) Rank {
        std::atomic<uint32_t> state;  // RankState
        std::atomic<int32_t> pid;
    };
    alignas(128) std::atomic<uint32_t> abort_state;  // AbortState; the first rank to leave 0 writes the reason
    alignas(128) char abort_reason[kReasonBytes];
    Rank ranks[kMostRanks];
};

struct SegmentRequest {
    size_t pool_bytes_per_rank = 0;
    size_t common_bytes = 0;
};

// Sizes and offsets in bytes; a pure function of its arguments.
struct SegmentLayout {
    SegmentLayout(int rank_count, const SegmentRequest& request);

    int rank_count = 0;
    size_t common_offset = 0;
    size_t common_bytes = 0;
    size_t blocks_offset = 0;
    size_t region_offset = 0;  // in a block
    size_t region_bytes = 0;
    size_t block_bytes = 0;
    size_t total_bytes = 0;
};

class NodeSegment {
public:
    // Collective over the ranks of `world`'s node: each maps the memory; they still have to join(). `prefix` starts the store's
    // keys and is new for each segment. Throws DeviceError with the bytes needed and free when it does not fit, on every rank, and
    // CommError when a rank is missing. shared_ptr because threads that act as ranks share one mapping; in a job each process has
    // its own.
    static std::shared_ptr<NodeSegment> open(const World& world, Store& store, const std::string& prefix,
                                             const SegmentRequest& request, int64_t timeout_ms);

    // The same in a file that the caller has made (create_segment_file).
    NodeSegment(const SegmentLayout& layout, const FileHandle& file);
    NodeSegment(const NodeSegment&) = delete;
    NodeSegment& operator=(const NodeSegment&) = delete;
    ~NodeSegment();

    // Collective: every rank touches its own block and its part of the common memory, on its own cores, and waits for the others.
    // Afterwards no access faults. Errors as open().
    void join(const World& world, int64_t timeout_ms);

    int rank_count() const { return layout_.rank_count; }
    SegmentControl& control() const { return *reinterpret_cast<SegmentControl*>(base_); }
    RankBlock& block(int rank) const { return *reinterpret_cast<RankBlock*>(block_start(rank)); }
    std::byte* region(int rank) const { return block_start(rank) + layout_.region_offset; }
    size_t region_bytes() const { return layout_.region_bytes; }
    std::byte* common() const { return base_ + layout_.common_offset; }  // of all ranks; zero until they write
    size_t common_bytes() const { return layout_.common_bytes; }

private:
    std::byte* block_start(int rank) const {
        return base_ + layout_.blocks_offset + static_cast<size_t>(rank) * layout_.block_bytes;
    }
    int touch_own_memory(int local_rank) const;
    void await_all(const World& world, int64_t timeout_ms);

    const SegmentLayout layout_;
    std::byte* reserved_ = nullptr;  // address space, a little more than the segment
    size_t reserved_bytes_ = 0;
    std::byte* base_ = nullptr;
};

}  // namespace lockstep
