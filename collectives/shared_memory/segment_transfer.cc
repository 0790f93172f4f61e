#include "collectives/shared_memory/segment_transfer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/kernels/reduce_kernels.h"

namespace lockstep {

namespace {

constexpr size_t kChunkBytes = RankBlock::kStagingBytes;

struct Range {  // bytes
    size_t first = 0;
    size_t last = 0;
    size_t size() const { return last - first; }
};

// The slice of `rank` in `bytes` of elements.
Range slice_of(size_t bytes, DataType type, size_t rank, size_t size) {
    const size_t element_bytes = bytes_per_element(type);
    const auto [first, last] =
        Communicator::slice(static_cast<int64_t>(bytes / element_bytes), static_cast<int>(rank), static_cast<int>(size));
    return {static_cast<size_t>(first) * element_bytes, static_cast<size_t>(last) * element_bytes};
}

Range part_in_chunk(const Range& slice, size_t start, size_t bytes) {
    return {std::clamp(slice.first, start, start + bytes), std::clamp(slice.last, start, start + bytes)};
}

}  // namespace

SegmentPathLimits path_limits(bool any_shares_cores) {
    SegmentPathLimits limits;
    if (any_shares_cores) limits.copied_bytes_inside = limits.copied_bytes_outside;
    return limits;
}

SegmentPath choose_path(const Operation& operation, int64_t place, const SegmentPathLimits& limits) {
    if (operation.byte_count <= limits.inlined_bytes) return SegmentPath::inlined;
    if (place >= 0) return operation.byte_count <= limits.copied_bytes_inside ? SegmentPath::copied : SegmentPath::direct;
    return operation.byte_count <= limits.copied_bytes_outside ? SegmentPath::copied : SegmentPath::staged;
}

SegmentTransfer::SegmentTransfer(LocalGroup& group)
    : group_(group),
      rank_(static_cast<size_t>(group.rank())),
      size_(static_cast<size_t>(group.size())),
      outputs_(size_),
      inputs_(size_) {}

std::span<const std::byte> SegmentTransfer::contribution_of_this_rank(const Operation& operation) const {
    switch (operation.kind) {
        case OperationKind::allreduce:
        case OperationKind::reduce_scatter:
        case OperationKind::allgather_slices:
            return {operation.target, operation.byte_count};
        case OperationKind::allgather:
            return {operation.source, operation.byte_count};
        case OperationKind::broadcast:
            if (operation.root == group_.rank()) return {operation.target, operation.byte_count};
            return {};
        case OperationKind::barrier:
            return {};
    }
    return {};
}

bool SegmentTransfer::prepare(const Operation& operation, SegmentPath path, std::span<const std::byte>& payload) {
    payload = {};
    if (path == SegmentPath::inlined) payload = contribution_of_this_rank(operation);
    if (path != SegmentPath::copied) return true;
    const size_t index = copies_made_ % RankBlock::kCopies;
    if (!group_.all_done(copy_users_[index])) return false;
    const std::span<const std::byte> data = contribution_of_this_rank(operation);
    if (!data.empty()) std::memcpy(group_.segment().block(group_.rank()).copies[index], data.data(), data.size());
    copy_users_[index] = operation.sequence;
    ++copies_made_;
    return true;
}

bool SegmentTransfer::share(const Operation& operation, SegmentPath path, int64_t place) {
    switch (path) {
        case SegmentPath::inlined:
        case SegmentPath::copied:
            share_small(operation, path);
            return true;
        case SegmentPath::direct:
            share_direct(operation, static_cast<size_t>(place));
            return true;
        case SegmentPath::staged:
            return share_staged(operation);
    }
    return true;
}

// inputs_ -> the first outputs_.
void SegmentTransfer::sum(DataType type, size_t output_count, size_t bytes) {
    reduce_kernels::sum(type, std::span(outputs_).first(output_count), inputs_, bytes / bytes_per_element(type));
}

void SegmentTransfer::share_small(const Operation& operation, SegmentPath path) {
    const size_t index = copies_shared_ % RankBlock::kCopies;
    if (path == SegmentPath::copied) ++copies_shared_;
    const auto contribution = [&](size_t rank) -> const std::byte* {
        const int peer = static_cast<int>(rank);
        return path == SegmentPath::copied ? group_.segment().block(peer).copies[index]
                                           : group_.payload_of(peer, operation.sequence);
    };
    const size_t bytes = operation.byte_count;
    if (bytes == 0) return;
    if (operation.sums()) {
        const Range own =
            operation.kind == OperationKind::allreduce ? Range{0, bytes} : slice_of(bytes, operation.type, rank_, size_);
        for (size_t rank = 0; rank < size_; ++rank) inputs_[rank] = contribution(rank) + own.first;
        outputs_[0] = operation.target + own.first;
        sum(operation.type, 1, own.size());
    } else if (operation.kind == OperationKind::allgather) {
        for (size_t rank = 0; rank < size_; ++rank) std::memcpy(operation.target + rank * bytes, contribution(rank), bytes);
    } else if (operation.kind == OperationKind::allgather_slices) {
        for (size_t rank = 0; rank < size_; ++rank) {
            const Range slice = slice_of(bytes, operation.type, rank, size_);
            if (rank != rank_) std::copy_n(contribution(rank) + slice.first, slice.size(), operation.target + slice.first);
        }
    } else if (operation.kind == OperationKind::broadcast && operation.root != group_.rank()) {
        std::memcpy(operation.target, contribution(static_cast<size_t>(operation.root)), bytes);
    }
}

void SegmentTransfer::share_direct(const Operation& operation, size_t place) {
    const Range own = slice_of(operation.byte_count, operation.type, rank_, size_);
    for (size_t rank = 0; rank < size_; ++rank) {
        outputs_[rank] = group_.segment().region(static_cast<int>(rank)) + place + own.first;
        inputs_[rank] = outputs_[rank];
    }
    if (operation.kind == OperationKind::allreduce) return sum(operation.type, size_, own.size());
    if (operation.kind == OperationKind::allgather_slices) {
        for (size_t rank = 0; rank < size_; ++rank) {
            if (rank != rank_) std::memcpy(outputs_[rank], inputs_[rank_], own.size());
        }
        return;
    }
    // Reduce-scatter: only the own slice of the own buffer is written; nobody else reads it.
    outputs_[0] = outputs_[rank_];
    sum(operation.type, 1, own.size());
}

// Chunk by chunk: every rank fills its slot, all meet, every rank uses the slots; an allreduce meets once more to collect the sums.
//
// Why the halves may take turns without a further wait: a rank fills half A again only after a meeting of the chunk in half B,
// which the others announce after they have read all of half A.
bool SegmentTransfer::share_staged(const Operation& operation) {
    while (start_ < operation.byte_count) {
        const size_t bytes = std::min(kChunkBytes, operation.byte_count - start_);
        if (step_ == Step::fill) {
            half_ = 1 - half_;
            fill_chunk(operation, bytes);
            group_.announce_phase();
            step_ = Step::use;
        }
        if (!group_.all_in_phase()) return false;
        if (step_ == Step::use) {
            use_chunk(operation, bytes);
            if (operation.kind == OperationKind::allreduce) {
                group_.announce_phase();
                step_ = Step::collect;
                continue;
            }
        } else {
            collect_chunk(operation, bytes);
        }
        start_ += bytes;
        step_ = Step::fill;
    }
    start_ = 0;
    return true;
}

// Of an allreduce, only what the others sum: the own slice is summed from where it is.
void SegmentTransfer::fill_chunk(const Operation& operation, size_t bytes) {
    std::span<const std::byte> data = contribution_of_this_rank(operation);
    if (data.empty()) return;
    data = data.subspan(start_, bytes);
    std::byte* const mine = slot(group_.rank());
    if (operation.kind == OperationKind::allreduce) {
        const Range own = slice_of(bytes, operation.type, rank_, size_);
        std::copy_n(data.data(), own.first, mine);
        std::copy_n(data.data() + own.last, bytes - own.last, mine + own.last);
    } else {
        std::copy_n(data.data(), bytes, mine);
    }
}

void SegmentTransfer::use_chunk(const Operation& operation, size_t bytes) {
    switch (operation.kind) {
        case OperationKind::allreduce:
            return sum_chunk(operation, bytes);
        case OperationKind::reduce_scatter:
            return sum_chunk_of_slice(operation, bytes);
        case OperationKind::allgather_slices:
            return collect_slices(operation, bytes);
        case OperationKind::allgather:
            for (size_t rank = 0; rank < size_; ++rank) {
                std::copy_n(slot(static_cast<int>(rank)), bytes, operation.target + rank * operation.byte_count + start_);
            }
            return;
        case OperationKind::broadcast:
            if (operation.root != group_.rank()) std::copy_n(slot(operation.root), bytes, operation.target + start_);
            return;
        case OperationKind::barrier:
            return;
    }
}

// The sum of a slice goes into its owner's data and into its owner's slot, where nobody else reads that slice before the next
// meeting.
void SegmentTransfer::sum_chunk(const Operation& operation, size_t bytes) {
    const Range own = slice_of(bytes, operation.type, rank_, size_);
    for (size_t rank = 0; rank < size_; ++rank) inputs_[rank] = slot(static_cast<int>(rank)) + own.first;
    outputs_[0] = operation.target + start_ + own.first;
    outputs_[1] = slot(group_.rank()) + own.first;
    inputs_[rank_] = outputs_[0];
    sum(operation.type, 2, own.size());
}

void SegmentTransfer::sum_chunk_of_slice(const Operation& operation, size_t bytes) {
    const Range part = part_in_chunk(slice_of(operation.byte_count, operation.type, rank_, size_), start_, bytes);
    for (size_t rank = 0; rank < size_; ++rank) inputs_[rank] = slot(static_cast<int>(rank)) + (part.first - start_);
    outputs_[0] = operation.target + part.first;
    sum(operation.type, 1, part.size());
}

// The slices of the whole data, as far as they lie in the chunk.
void SegmentTransfer::collect_slices(const Operation& operation, size_t bytes) {
    for (size_t rank = 0; rank < size_; ++rank) {
        if (rank == rank_) continue;
        const Range part = part_in_chunk(slice_of(operation.byte_count, operation.type, rank, size_), start_, bytes);
        std::copy_n(slot(static_cast<int>(rank)) + (part.first - start_), part.size(), operation.target + part.first);
    }
}

void SegmentTransfer::collect_chunk(const Operation& operation, size_t bytes) {
    for (size_t rank = 0; rank < size_; ++rank) {
        if (rank == rank_) continue;
        const Range theirs = slice_of(bytes, operation.type, rank, size_);
        std::copy_n(slot(static_cast<int>(rank)) + theirs.first, theirs.size(), operation.target + start_ + theirs.first);
    }
}

}  // namespace lockstep
