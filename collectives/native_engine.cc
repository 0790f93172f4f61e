#include "collectives/native_engine.h"

#include <algorithm>
#include <cstring>

#include "collectives/reduce_kernels.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

constexpr size_t kChunkBytes = SegmentLayout::kStagingBytes;
constexpr size_t kChunkCount = kChunkBytes / sizeof(float);
constexpr size_t kSmallBytes = 8192;  // up to here a second wait costs more than everybody summing everything

size_t float_count(const Operation& operation) { return operation.byte_count / sizeof(float); }

std::pair<size_t, size_t> slice_of(size_t count, int rank, int size) {
    const auto [first, last] = Communicator::slice(static_cast<int64_t>(count), rank, size);
    return {static_cast<size_t>(first), static_cast<size_t>(last)};
}

}  // namespace

NativeEngine::NativeEngine(const World& world, Store& store, const std::string& prefix, const CommunicatorOptions& options)
    : world_(world),
      delay_ns_per_kib_(options.test_delay_ns_per_kib),
      segment_(world, store, prefix, options.segment_bytes, options.connect_timeout_ms),
      group_(segment_, world, options.timeout_ms),
      pool_(segment_.region(world.rank), segment_.region_bytes()),
      buffers_(static_cast<size_t>(world.size)),
      inputs_(static_cast<size_t>(world.size)) {}

void NativeEngine::run(const Operation& operation, WorkTimes& times) {
    const bool sums = operation.kind == OperationKind::allreduce || operation.kind == OperationKind::reduce_scatter;
    const int64_t place = sums ? pool_.offset_of(operation.floats, operation.byte_count) : -1;
    group_.begin(operation, place);
    if (operation.byte_count == 0) return meet(operation, times);  // a barrier, too
    const auto offset = static_cast<size_t>(place);
    switch (operation.kind) {
        case OperationKind::allreduce:
            if (place >= 0) return allreduce_direct(operation, offset, times);
            if (operation.byte_count <= kSmallBytes) return allreduce_small(operation, times);
            return allreduce_staged(operation, times);
        case OperationKind::reduce_scatter:
            if (place >= 0) return reduce_scatter_direct(operation, offset, times);
            return reduce_scatter_staged(operation, times);
        case OperationKind::allgather:
            return allgather(operation, times);
        case OperationKind::broadcast:
            return broadcast(operation, times);
        case OperationKind::barrier:
            return meet(operation, times);
    }
}

void NativeEngine::meet(const Operation& operation, WorkTimes& times) {
    group_.announce();
    group_.wait_for_all();
    times.arrived_ns = now_ns();
    group_.check_agreement();
    if (delay_ns_per_kib_ > 0) group_.sleep_ns(static_cast<int64_t>(operation.byte_count) * delay_ns_per_kib_ / 1024);
}

void NativeEngine::allreduce_direct(const Operation& operation, size_t offset, WorkTimes& times) {
    meet(operation, times);
    const auto [first, last] = slice_of(float_count(operation), world_.rank, world_.size);
    for (int rank = 0; rank < world_.size; ++rank) {
        buffers_[static_cast<size_t>(rank)] = reinterpret_cast<float*>(segment_.region(rank) + offset) + first;
    }
    reduce_kernels::sum_into_all(buffers_.data(), world_.size, last - first);
    group_.announce();
    group_.wait_for_all();
}

void NativeEngine::reduce_scatter_direct(const Operation& operation, size_t offset, WorkTimes& times) {
    meet(operation, times);
    const auto [first, last] = slice_of(float_count(operation), world_.rank, world_.size);
    for (int rank = 0; rank < world_.size; ++rank) {
        inputs_[static_cast<size_t>(rank)] = reinterpret_cast<const float*>(segment_.region(rank) + offset) + first;
    }
    // Only the own slice of the own buffer is written; nobody else reads it.
    reduce_kernels::sum(operation.floats + first, inputs_.data(), world_.size, last - first);
    group_.announce();
    group_.wait_for_all();  // the others still read this rank's data until then
}

// Why the halves may take turns without a further wait: a rank writes half A again only after a wait of the chunk in half B, which
// the others announce after they have read all of half A.
void NativeEngine::exchange_chunk(const Operation& operation, const std::byte* source, size_t bytes, bool is_first,
                                  WorkTimes& times) {
    next_half();
    if (bytes > 0) std::memcpy(slot(world_.rank), source, bytes);
    if (is_first) return meet(operation, times);
    group_.announce();
    group_.wait_for_all();
}

void NativeEngine::allreduce_small(const Operation& operation, WorkTimes& times) {
    exchange_chunk(operation, reinterpret_cast<const std::byte*>(operation.floats), operation.byte_count, true, times);
    for (int rank = 0; rank < world_.size; ++rank) inputs_[static_cast<size_t>(rank)] = reinterpret_cast<const float*>(slot(rank));
    reduce_kernels::sum(operation.floats, inputs_.data(), world_.size, float_count(operation));
}

void NativeEngine::allreduce_staged(const Operation& operation, WorkTimes& times) {
    for (size_t start = 0; start < float_count(operation); start += kChunkCount) {
        const size_t count = std::min(kChunkCount, float_count(operation) - start);
        float* const data = operation.floats + start;
        exchange_chunk(operation, reinterpret_cast<const std::byte*>(data), count * sizeof(float), start == 0, times);
        // The sum of a slice stands in its owner's slot: nobody else reads that slice there before the next wait.
        const auto [first, last] = slice_of(count, world_.rank, world_.size);
        for (int rank = 0; rank < world_.size; ++rank) {
            inputs_[static_cast<size_t>(rank)] = reinterpret_cast<const float*>(slot(rank)) + first;
        }
        reduce_kernels::sum(reinterpret_cast<float*>(slot(world_.rank)) + first, inputs_.data(), world_.size, last - first);
        group_.announce();
        group_.wait_for_all();
        for (int rank = 0; rank < world_.size; ++rank) {
            const auto [rank_first, rank_last] = slice_of(count, rank, world_.size);
            const float* const sums = reinterpret_cast<const float*>(slot(rank));
            std::copy(sums + rank_first, sums + rank_last, data + rank_first);
        }
    }
}

void NativeEngine::reduce_scatter_staged(const Operation& operation, WorkTimes& times) {
    const auto [own_first, own_last] = slice_of(float_count(operation), world_.rank, world_.size);
    for (size_t start = 0; start < float_count(operation); start += kChunkCount) {
        const size_t count = std::min(kChunkCount, float_count(operation) - start);
        const auto* source = reinterpret_cast<const std::byte*>(operation.floats + start);
        exchange_chunk(operation, source, count * sizeof(float), start == 0, times);
        const size_t first = std::max(own_first, start);
        const size_t last = std::min(own_last, start + count);
        if (first >= last) continue;
        for (int rank = 0; rank < world_.size; ++rank) {
            inputs_[static_cast<size_t>(rank)] = reinterpret_cast<const float*>(slot(rank)) + (first - start);
        }
        reduce_kernels::sum(operation.floats + first, inputs_.data(), world_.size, last - first);
    }
}

void NativeEngine::allgather(const Operation& operation, WorkTimes& times) {
    for (size_t start = 0; start < operation.byte_count; start += kChunkBytes) {
        const size_t bytes = std::min(kChunkBytes, operation.byte_count - start);
        exchange_chunk(operation, operation.source + start, bytes, start == 0, times);
        for (int rank = 0; rank < world_.size; ++rank) {
            std::memcpy(operation.target + static_cast<size_t>(rank) * operation.byte_count + start, slot(rank), bytes);
        }
    }
}

void NativeEngine::broadcast(const Operation& operation, WorkTimes& times) {
    const bool is_root = operation.root == world_.rank;
    for (size_t start = 0; start < operation.byte_count; start += kChunkBytes) {
        const size_t bytes = std::min(kChunkBytes, operation.byte_count - start);
        exchange_chunk(operation, operation.target + start, is_root ? bytes : 0, start == 0, times);
        if (!is_root) std::memcpy(operation.target + start, slot(operation.root), bytes);
    }
}

}  // namespace lockstep
