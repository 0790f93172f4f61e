// The memory of an allreduce over several nodes: the gradients of a node's ranks lie in one shared segment, each rank sums its own
// slice over the ranks of its node, and when the slice has been summed over the nodes, stores it into the buffers of all of them.
// When that is allowed is the caller's business (TransportCommunicator lets the ranks of the node meet before and after).
//
// Nodes may have different numbers of ranks. There are as many slices ("rails") as the smallest node has ranks: slice r belongs to
// the r-th rank of every node. Ranks beyond that contribute to all slices and own none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/shared_memory/node_segment.h"
#include "collectives/shared_memory/segment_pool.h"
#include "core/tensor.h"
#include "core/world.h"
#include "net/store.h"

namespace lockstep {

class NodeMemory {
public:
    struct Options {
        int rail_count = 1;
        size_t segment_bytes = 0;  // of gradient memory per rank
        size_t common_bytes = 0;   // of memory that the ranks of the node have in common
        int64_t connect_timeout_ms = 60'000;
    };

    // Collective over the ranks of the node. `world`: of the job; `prefix`: of this communicator's keys. Errors as NodeSegment's.
    NodeMemory(const World& world, Store& store, const std::string& prefix, const Options& options);

    MemoryPool& pool() { return pool_; }
    MemoryPool& common_pool() { return common_pool_; }
    // Offset of data in this rank's region, the same on all ranks of the node; -1: not in the segment.
    int64_t offset_of(const void* data, size_t bytes) const { return pool_.offset_of(data, bytes); }

    // Of `count` elements: those that this rank sums and stores; empty for a rank without a rail.
    std::pair<int64_t, int64_t> own_slice(int64_t count) const;
    // Around a meeting that travels by messages: what a rank wrote before it is seen by all after it.
    static void before_meeting();
    static void after_meeting();

    // Own slice of the own buffer = sum over the ranks of the node, in a binary tree by local rank.
    void sum_own_slice(DataType type, int64_t offset, int64_t count);
    // The own slice of the own buffer goes to all ranks of the node.
    void store_own_slice(DataType type, int64_t offset, int64_t count);

private:
    std::byte* own_slice_in(int local_rank, DataType type, int64_t offset, int64_t first) const;

    const World world_;
    const int rail_count_;
    const std::shared_ptr<NodeSegment> segment_;
    SegmentPool pool_;
    CommonPool common_pool_;
    std::vector<const void*> inputs_;  // by local rank
};

}  // namespace lockstep
