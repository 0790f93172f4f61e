// Buffers in this rank's region of the node's segment, one behind the other. All ranks allocate the same sizes in the same order,
// so equal buffers lie at equal offsets.
#pragma once

#include <cstddef>

#include "collectives/shared_memory/node_segment.h"
#include "core/tensor.h"

namespace lockstep {

class SegmentPool final : public MemoryPool {
public:
    SegmentPool(std::byte* region, size_t region_bytes) : region_(region), region_bytes_(region_bytes) {}

    // Room is used again once all buffers are gone. DeviceError naming the bytes asked for and left.
    Buffer allocate(size_t bytes) override;

    // Offset of `data` in the region when all of it lies there, else -1.
    int64_t offset_of(const void* data, size_t bytes) const;

private:
    std::byte* const region_;
    const size_t region_bytes_;
    size_t used_bytes_ = 0;
    size_t live_buffers_ = 0;
};

// Buffers in the memory that all ranks of the node have in common. All ranks allocate the same sizes in the same order and so get
// the same bytes, zero before the first of them writes. Room is given out once.
class CommonPool final : public MemoryPool {
public:
    CommonPool(std::byte* start, size_t bytes) : start_(start), bytes_(bytes) {}

    // DeviceError naming the bytes asked for and left.
    Buffer allocate(size_t bytes) override;

private:
    std::byte* const start_;
    const size_t bytes_;
    size_t used_bytes_ = 0;
};

}  // namespace lockstep
