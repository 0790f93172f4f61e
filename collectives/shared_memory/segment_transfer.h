// What a rank does for an operation once all ranks of the node have come to it. Four paths:
//
//   inlined  a few bytes: every rank's lie beside its announcement, and every rank sums all of them itself;
//   copied   small data outside the segment, likewise through a copy in shared memory;
//   direct   data in the segment: every rank sums its own slice over all ranks where they are and writes the sum into all ranks'
//            buffers. No copy: each byte is read once and written once per rank. Complete when all ranks have done so;
//   staged   the rest, chunk by chunk through the staging memory, whose two halves take turns.
//
// The path follows from kind, size and place, so all ranks take the same. Nothing here waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/operation.h"
#include "collectives/shared_memory/local_group.h"

namespace lockstep {

enum class SegmentPath : uint8_t { inlined, copied, direct, staged };

struct SegmentPathLimits {
    size_t inlined_bytes = Announcement::kInlineBytes;
    size_t copied_bytes_inside = 512;  // in the segment: up to here one meeting with a copy beats two without
    size_t copied_bytes_outside = RankBlock::kCopyBytes;
};

// Where ranks share cores a meeting costs a change of process, far more than any small copy.
SegmentPathLimits path_limits(bool any_shares_cores);

// `place`: offset in the region, -1 outside.
SegmentPath choose_path(const Operation& operation, int64_t place, const SegmentPathLimits& limits);

class SegmentTransfer {
public:
    explicit SegmentTransfer(LocalGroup& group);

    // Before the announcement: puts this rank's data where the path needs it and returns what goes into the announcement. False
    // when the memory for it is still being read by a peer; ask again.
    bool prepare(const Operation& operation, SegmentPath path, std::span<const std::byte>& payload);

    // After all have announced it: this rank's share. False while a step of a peer is missing; call again, with the same operation.
    bool share(const Operation& operation, SegmentPath path, int64_t place);

private:
    enum class Step : uint8_t { fill, use, collect };

    std::span<const std::byte> contribution_of_this_rank(const Operation& operation) const;
    void share_small(const Operation& operation, SegmentPath path);
    void share_direct(const Operation& operation, size_t place);
    void collect_slices(const Operation& operation, size_t bytes);
    bool share_staged(const Operation& operation);
    void fill_chunk(const Operation& operation, size_t bytes);
    void use_chunk(const Operation& operation, size_t bytes);
    void sum_chunk(const Operation& operation, size_t bytes);
    void sum_chunk_of_slice(const Operation& operation, size_t bytes);
    void collect_chunk(const Operation& operation, size_t bytes);
    std::byte* slot(int rank) const { return group_.segment().block(rank).staging[half_]; }
    void sum(DataType type, size_t output_count, size_t bytes);

    LocalGroup& group_;
    const size_t rank_;
    const size_t size_;
    std::vector<void*> outputs_;       // scratch of the running operation
    std::vector<const void*> inputs_;  // by rank; likewise

    uint64_t copies_made_ = 0;    // by prepare()
    uint64_t copies_shared_ = 0;  // by share(); both count the copied operations, which all ranks have in the same order
    std::array<uint64_t, RankBlock::kCopies> copy_users_{};  // sequence of the last operation in each copy

    // Of the staged operation that is under way; one at a time.
    Step step_ = Step::fill;
    size_t start_ = 0;  // of the chunk, bytes
    size_t half_ = 0;
};

}  // namespace lockstep
