#include "trainer/gradient_tree.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/parallel.h"

namespace lockstep {

namespace {

constexpr int64_t kChunk = 4096;  // floats that stay in the first-level cache while all levels are added

}  // namespace

GradientTree::GradientTree(ParameterArena& arena, int64_t leaves, int threads)
    : arena_(arena), leaves_(leaves), threads_(threads), count_(arena.entries().back().offset) {
    check(leaves > 0 && std::has_single_bit(static_cast<uint64_t>(leaves)), "a gradient tree has a power of two of leaves");
    for (int64_t width = 1; width < leaves; width *= 2) {
        partials_.push_back(pool_.allocate(static_cast<size_t>(count_) * sizeof(float)));
        std::ranges::fill(partials_.back().f32(), 0.0F);  // touched now, not in a step
    }
}

void GradientTree::add_partials(float* target, int64_t first, int64_t last, int levels) const {
    const float* const leaf = arena_.gradients().data();
    const int64_t chunks = (last - first + kChunk - 1) / kChunk;
    parallel_for(threads_, chunks, [&](int64_t chunk) {
        const int64_t begin = first + chunk * kChunk;
        const int64_t end = std::min(begin + kChunk, last);
        if (target != leaf) std::copy(leaf + begin, leaf + end, target + begin);
        for (int level = 0; level < levels; ++level) {
            const float* const partial = partials_[static_cast<size_t>(level)].f32().data();
            for (int64_t index = begin; index < end; ++index) target[index] = partial[index] + target[index];
        }
    });
}

void GradientTree::keep(int64_t index) {
    check(index >= 0 && index + 1 < leaves_, "the last leaf of a step is finished, not kept");
    // As a binary counter: leaf `index` completes a subtree for every trailing one bit of its number.
    const int levels = std::countr_one(static_cast<uint64_t>(index));
    add_partials(partials_[static_cast<size_t>(levels)].f32().data(), 0, count_, levels);
}

void GradientTree::clear_leaf() { std::ranges::fill(arena_.gradients().first(static_cast<size_t>(count_)), 0.0F); }

void GradientTree::finish(int64_t first, int64_t last) {
    last = std::min(last, count_);
    if (first >= last || partials_.empty()) return;
    add_partials(arena_.gradients().data(), first, last, static_cast<int>(partials_.size()));
}

}  // namespace lockstep
