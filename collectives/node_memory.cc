#include "collectives/node_memory.h"

#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "collectives/communicator.h"
#include "collectives/reduce_kernels.h"

namespace lockstep {

namespace {

// The node as a world of its own.
World node_world(const World& world) {
    World node = world;
    node.rank = world.local_rank;
    node.size = world.local_size;
    node.node = 0;
    node.node_count = 1;
    return node;
}

}  // namespace

NodeMemory::NodeMemory(const World& world, Store& store, const std::string& prefix, const Options& options)
    : world_(world),
      rail_count_(options.rail_count),
      segment_(node_world(world), store, fmt::format("{}/node/{}", prefix, world.node), options.segment_bytes,
               options.connect_timeout_ms),
      pool_(segment_.region(world.local_rank), segment_.region_bytes()),
      inputs_(static_cast<size_t>(world.local_size)) {}

std::pair<int64_t, int64_t> NodeMemory::own_slice(int64_t count) const {
    if (world_.local_rank >= rail_count_) return {0, 0};
    return Communicator::slice(count, world_.local_rank, rail_count_);
}

float* NodeMemory::floats(int local_rank, int64_t offset) const {
    return reinterpret_cast<float*>(segment_.region(local_rank) + offset);
}

// The fences pair with each other across the meeting of the node's ranks, whatever carries it.
void NodeMemory::sum_own_slice(int64_t offset, int64_t count) {
    std::atomic_thread_fence(std::memory_order_acquire);
    const auto [first, last] = own_slice(count);
    if (first == last) return;
    for (int rank = 0; rank < world_.local_size; ++rank) inputs_[static_cast<size_t>(rank)] = floats(rank, offset) + first;
    reduce_kernels::sum(floats(world_.local_rank, offset) + first, inputs_.data(), world_.local_size,
                        static_cast<size_t>(last - first));
}

void NodeMemory::store_own_slice(int64_t offset, int64_t count) {
    const auto [first, last] = own_slice(count);
    const float* const mine = floats(world_.local_rank, offset) + first;
    for (int rank = 0; rank < world_.local_size; ++rank) {
        if (rank == world_.local_rank) continue;
        std::memcpy(floats(rank, offset) + first, mine, static_cast<size_t>(last - first) * sizeof(float));
    }
    std::atomic_thread_fence(std::memory_order_release);
}

}  // namespace lockstep
