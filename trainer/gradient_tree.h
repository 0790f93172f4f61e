// Adds the gradients of this rank's virtual workers along one fixed binary tree, for runs that give the same bits on any number of
// ranks (run.reproducible: any_world).
//
// Leaves are the virtual workers of a full step, a power of two. Ranks, a power of two as well, hold aligned runs of leaves, and
// collectives add along the same tree over ranks; so every sum is one of the tree's, whoever forms it. The virtual workers that a
// short step lacks are leaves of zeros.
#pragma once

#include <cstdint>
#include <vector>

#include "core/parameter_arena.h"
#include "core/tensor.h"

namespace lockstep {

class GradientTree {
public:
    // `leaves` per rank, a power of two. Takes log2(leaves) buffers of the gradients' size; nothing is allocated afterwards.
    GradientTree(ParameterArena& arena, int64_t leaves, int threads);

    int64_t leaves() const { return leaves_; }

    // The arena's gradients hold leaf `index`, not the last one of the step: kept in a partial sum. Leaves come in order.
    void keep(int64_t index);
    // The arena's gradients hold a leaf of zeros.
    void clear_leaf();
    // The arena's gradients [first, last), in floats, hold the last leaf: turned into the sum of all leaves, in place. The control
    // entry is no gradient and stays as it is.
    void finish(int64_t first, int64_t last);

private:
    // sum = the arena's range plus the partial sums of `levels` levels, lowest first.
    void add_partials(float* target, int64_t first, int64_t last, int levels) const;

    ParameterArena& arena_;
    const int64_t leaves_;
    const int threads_;
    const int64_t count_;  // floats in front of the control entry
    HeapPool pool_;
    std::vector<Buffer> partials_;  // of level l: the sum of 2^l leaves
};

}  // namespace lockstep
