// Collectives through the node's shared segment. Needs all ranks on one node.
//
// Data inside the segment (gradient_pool): direct access. Every rank announces that its data is complete, waits for all, sums its
// own slice over all ranks in rank order and writes the sum into all ranks' buffers, announces, waits for all. No copy, and each
// byte is read once and written once per rank. Data outside: through the staging slots, chunk by chunk, the two halves of a slot
// taking turns. Small data needs one wait only: every rank sums everything itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/engine.h"
#include "collectives/local_group.h"
#include "collectives/node_segment.h"
#include "collectives/segment_pool.h"

namespace lockstep {

class NativeEngine final : public Engine {
public:
    // Collective over all ranks. Errors as NodeSegment's.
    NativeEngine(const World& world, Store& store, const std::string& prefix, const CommunicatorOptions& options);

    std::string_view name() const override { return "native"; }
    MemoryPool& gradient_pool() override { return pool_; }
    void run(const Operation& operation, WorkTimes& times) override;
    void note_progress() noexcept override { group_.note_progress(); }
    void abort(std::string_view reason) noexcept override { group_.abort(reason); }

private:
    void meet(const Operation& operation, WorkTimes& times);  // first announcement, first wait, agreement
    void allreduce_direct(const Operation& operation, size_t offset, WorkTimes& times);
    void allreduce_small(const Operation& operation, WorkTimes& times);
    void allreduce_staged(const Operation& operation, WorkTimes& times);
    void reduce_scatter_direct(const Operation& operation, size_t offset, WorkTimes& times);
    void reduce_scatter_staged(const Operation& operation, WorkTimes& times);
    void allgather(const Operation& operation, WorkTimes& times);
    void broadcast(const Operation& operation, WorkTimes& times);

    // The staging slot of `rank` in the half that is in use.
    std::byte* slot(int rank) const { return segment_.staging(rank, half_); }
    void next_half() { half_ = 1 - half_; }
    // Copies this rank's part of a chunk into its slot and returns when all ranks have done so.
    void exchange_chunk(const Operation& operation, const std::byte* source, size_t bytes, bool is_first, WorkTimes& times);

    const World world_;
    const int64_t delay_ns_per_kib_;
    NodeSegment segment_;
    LocalGroup group_;
    SegmentPool pool_;
    int half_ = 0;
    std::vector<float*> buffers_;       // by rank; scratch of the running operation
    std::vector<const float*> inputs_;  // likewise
};

}  // namespace lockstep
