#include "collectives/shared_memory/node_memory.h"

#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "collectives/communicator.h"
#include "collectives/kernels/reduce_kernels.h"

namespace lockstep {

NodeMemory::NodeMemory(const World& world, Store& store, const std::string& prefix, const Options& options)
    : world_(world),
      rail_count_(options.rail_count),
      segment_(NodeSegment::open(world, store, fmt::format("{}/node/{}", prefix, world.node),
                                 {.pool_bytes_per_rank = options.segment_bytes, .common_bytes = options.common_bytes},
                                 options.connect_timeout_ms)),
      pool_(segment_->region(world.local_rank), segment_->region_bytes()),
      common_pool_(segment_->common(), segment_->common_bytes()),
      inputs_(static_cast<size_t>(world.local_size)) {
    segment_->join(world, options.connect_timeout_ms);
}

std::pair<int64_t, int64_t> NodeMemory::own_slice(int64_t count) const {
    if (world_.local_rank >= rail_count_) return {0, 0};
    return Communicator::slice(count, world_.local_rank, rail_count_);
}

std::byte* NodeMemory::own_slice_in(int local_rank, DataType type, int64_t offset, int64_t first) const {
    return segment_->region(local_rank) + offset + first * static_cast<int64_t>(bytes_per_element(type));
}

// The fences pair with each other across the meeting of the node's ranks, whatever carries it.
void NodeMemory::before_meeting() { std::atomic_thread_fence(std::memory_order_release); }
void NodeMemory::after_meeting() { std::atomic_thread_fence(std::memory_order_acquire); }

void NodeMemory::sum_own_slice(DataType type, int64_t offset, int64_t count) {
    after_meeting();
    const auto [first, last] = own_slice(count);
    if (first == last) return;
    for (int rank = 0; rank < world_.local_size; ++rank) {
        inputs_[static_cast<size_t>(rank)] = own_slice_in(rank, type, offset, first);
    }
    void* const outputs[] = {own_slice_in(world_.local_rank, type, offset, first)};
    reduce_kernels::sum(type, outputs, inputs_, static_cast<size_t>(last - first));
}

void NodeMemory::store_own_slice(DataType type, int64_t offset, int64_t count) {
    const auto [first, last] = own_slice(count);
    const std::byte* const mine = own_slice_in(world_.local_rank, type, offset, first);
    const size_t bytes = static_cast<size_t>(last - first) * bytes_per_element(type);
    for (int rank = 0; rank < world_.local_size; ++rank) {
        if (rank != world_.local_rank) std::memcpy(own_slice_in(rank, type, offset, first), mine, bytes);
    }
    before_meeting();
}

}  // namespace lockstep
