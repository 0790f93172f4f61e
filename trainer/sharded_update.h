// The update of the weights shared out among the ranks of a node (optim.sharded: node).
//
// The parameters lie once per node, in memory that its ranks have in common. Of every bucket a rank owns one slice: it receives the
// sum of that slice alone, keeps the optimizer state of that slice alone, and writes its new values where all ranks of the node
// read them. A step, after the reducer's finish():
//
//   inspect the own slices; agree: all ranks meet, nobody has changed a weight, and all know the same verdict;
//   update the own slices; publish: all ranks meet, everybody sees the new weights.
//
// Nodes do the same work on the same slices, so they agree without a message between them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/node_sharing.h"
#include "core/parameter_arena.h"
#include "core/world.h"
#include "optim/optimizer.h"
#include "trainer/bucket_plan.h"

namespace lockstep {

class ShardedUpdate {
public:
    // Of the node's common memory, for an arena with so many bytes of values.
    static size_t common_bytes(size_t value_bytes, int local_size);

    // Collective over the ranks of the node, which have equal plans. Everything named here outlives this.
    ShardedUpdate(NodeSharing& node, const World& world, ParameterArena& arena, const BucketPlan& plan);

    // Collective. The arena holds values and state of a whole replica, equal on all ranks; from now on this rank keeps its part.
    // Before executors are compiled: they remember where the values are.
    void take_over();

    // Each rank's health of its own slices -> that of the whole gradient, the same on all ranks. Waits for the node's ranks.
    GradientHealth agree(const GradientHealth& mine, int64_t step);
    // This rank has updated its slices. Waits for the node's ranks: then all weights are new.
    void publish(int64_t step);

    // Collective, between two steps: the leader of the job gets each array of optimizer state whole, in the arena's layout, to
    // `take` before it returns. Uses the gradients' memory on the way.
    void gather_state(int64_t step, const std::function<void(int index, std::span<const float> whole)>& take);

    int64_t owned_count() const;  // floats that this rank owns, of the arena's total_count()

private:
    // What a rank says of its slices. One writer; two cache lines, which processors fetch in pairs.
    struct alignas(128) Report {
        double squared_norm;
        int64_t first_bad_entry;
    };
    Report& report(int local_rank) const { return static_cast<Report*>(reports_.data())[local_rank]; }
    std::span<float> gradients_of(const Bucket& bucket) const;

    NodeSharing& node_;
    const World world_;
    ParameterArena& arena_;
    const BucketPlan& plan_;
    std::vector<ArenaRange> owned_;  // by bucket; some may be empty
    HeapPool private_pool_;
    Buffer values_;  // in common memory, until take_over()
    Buffer reports_;
};

}  // namespace lockstep
