// The memory that the ranks of one node share: a nameless file (memfd) made by rank 0 and handed to the others over a unix socket
// in the abstract namespace, so nothing is left behind however the processes end.
//
//   control block | staging slots, two halves per rank | region of rank 0 | region of rank 1 | ...
//
// Gradients are born in the regions; equal offsets in all regions belong together.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/operation.h"
#include "core/world.h"
#include "net/store.h"

namespace lockstep {

// One writer each (the rank itself) and 128 bytes apart: processors fetch cache lines in pairs.
struct RankControl {
    // Counts what this rank has announced; never reset. Release after the data and the signature, acquire before reading them.
    alignas(128) std::atomic<uint64_t> phase;
    // Of operation s in slot s % 2: a rank overwrites it two operations later, when all have passed the one between.
    alignas(128) OperationSignature signatures[2];
    // Counts signs of life of this rank's compute thread between its announcements.
    alignas(128) std::atomic<uint64_t> progress;
    alignas(128) std::atomic<uint32_t> state;  // RankState
    int32_t pid;
};

enum RankState : uint32_t { kRankAbsent = 0, kRankJoined = 1, kRankLeft = 2 };
enum AbortState : uint32_t { kNotAborted = 0, kAbortBeingWritten = 1, kAborted = 2 };

struct SegmentControl {
    static constexpr size_t kReasonBytes = 1024;
    alignas(128) std::atomic<uint32_t> abort_state;  // AbortState; the first rank to leave 0 writes the reason
    alignas(128) char abort_reason[kReasonBytes];
};

// Sizes and offsets in bytes; a pure function of its arguments.
struct SegmentLayout {
    static constexpr size_t kStagingBytes = size_t{256} << 10;  // one half; both halves of all ranks stay in a shared cache

    SegmentLayout(int rank_count, size_t pool_bytes_per_rank);

    size_t ranks_offset = 0;  // RankControl[rank_count]
    size_t staging_offset = 0;
    size_t regions_offset = 0;
    size_t region_bytes = 0;
    size_t total_bytes = 0;
};

class NodeSegment {
public:
    // Collective over the ranks of `world`, which are all on this node. `prefix` starts the store's keys and is new for each
    // segment. Throws DeviceError with the bytes needed and free when it does not fit, on every rank, and CommError when a rank is
    // missing.
    NodeSegment(const World& world, Store& store, const std::string& prefix, size_t pool_bytes_per_rank, int64_t timeout_ms);
    NodeSegment(const NodeSegment&) = delete;
    NodeSegment& operator=(const NodeSegment&) = delete;
    ~NodeSegment();

    SegmentControl& control() const { return *reinterpret_cast<SegmentControl*>(base_); }
    RankControl& rank_control(int rank) const { return reinterpret_cast<RankControl*>(base_ + layout_.ranks_offset)[rank]; }
    std::byte* staging(int rank, int half) const {
        return base_ + layout_.staging_offset +
               (2 * static_cast<size_t>(rank) + static_cast<size_t>(half)) * SegmentLayout::kStagingBytes;
    }
    std::byte* region(int rank) const { return base_ + layout_.regions_offset + static_cast<size_t>(rank) * layout_.region_bytes; }
    size_t region_bytes() const { return layout_.region_bytes; }

private:
    void map(int descriptor);
    void join(const World& world, int64_t timeout_ms);

    const SegmentLayout layout_;
    std::byte* base_ = nullptr;
};

}  // namespace lockstep
