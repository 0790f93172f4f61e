#include "nn/onednn/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace lockstep::onednn {

namespace {

constexpr size_t kAlignmentBytes = 64;

size_t align_up(size_t bytes) { return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }

bool live_together(const BufferLife& a, const BufferLife& b) { return a.first_use <= b.last_use && b.first_use <= a.last_use; }

struct Placed {
    size_t begin, end, buffer;
};

// The lowest gap between the placed neighbours (sorted by begin) that holds `bytes`.
size_t lowest_gap(const std::vector<Placed>& neighbours, size_t bytes) {
    size_t offset = 0;
    for (const Placed& neighbour : neighbours) {
        if (neighbour.begin >= offset + bytes) break;
        offset = std::max(offset, neighbour.end);
    }
    return offset;
}

}  // namespace

MemoryPlan plan_memory(std::span<const BufferLife> buffers) {
    std::vector<size_t> order(buffers.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });

    MemoryPlan plan{.offsets = std::vector<size_t>(buffers.size(), 0)};
    std::vector<Placed> placed;  // sorted by begin
    std::vector<Placed> neighbours;
    for (const size_t buffer : order) {
        const size_t bytes = align_up(buffers[buffer].bytes);
        neighbours.clear();
        for (const Placed& other : placed) {
            if (live_together(buffers[buffer], buffers[other.buffer])) neighbours.push_back(other);
        }
        const Placed place{lowest_gap(neighbours, bytes), 0, buffer};
        plan.offsets[buffer] = place.begin;
        const auto position = std::upper_bound(placed.begin(), placed.end(), place,
                                               [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
        placed.insert(position, {place.begin, place.begin + bytes, buffer});
        plan.total_bytes = std::max(plan.total_bytes, place.begin + bytes);
        plan.unshared_bytes += bytes;
    }
    return plan;
}

}  // namespace lockstep::onednn
