// What ranks of one node can do because they share memory: hold one copy of something, and share out sums so that each rank gets
// its own slice alone. Offered by backends that have such memory (Communicator::node_sharing). One caller thread; errors and order
// of calls as in Communicator.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "collectives/communicator.h"
#include "core/tensor.h"

namespace lockstep {

class NodeSharing {
public:
    virtual ~NodeSharing() = default;

    // Memory of the node (CommunicatorOptions::common_bytes): all its ranks allocate the same sizes in the same order and get the
    // same bytes, zero at first. Given out once; buffers die before the communicator.
    virtual MemoryPool& common_pool() = 0;

    // Of `count` elements those that this rank owns, [first, second). The slices of a node's ranks cover all, border on 16 elements
    // and are the same on every node; a rank that its node has more than another node may own none.
    virtual std::pair<int64_t, int64_t> node_slice(int64_t count) const = 0;

    // The sum over all ranks of the job, bit for bit that of allreduce, in this rank's own slice of `data`; the rest of `data` is
    // undefined. Between nodes the traffic is that of allreduce. Returns at once.
    virtual Work reduce_to_slices(std::span<float> data, CollectiveLabel label) = 0;

    // `data`, which lies in the gradient pool, receives every slice from the rank of this node that owns it. Waits.
    virtual void exchange_slices(std::span<float> data, CollectiveLabel label) = 0;

    // The ranks of this node meet: what each of them has written to common memory, all see afterwards. Waits.
    virtual void node_barrier(CollectiveLabel label) = 0;
};

}  // namespace lockstep
