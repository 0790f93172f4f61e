// Places buffers in one block of memory so that buffers whose lives overlap never share a byte. A pure function.
//
// Greedy by size (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", arXiv:2001.03288, section 5):
// the largest buffer first, each at the lowest offset that is free during its whole life.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::onednn {

struct BufferLife {
    size_t bytes = 0;
    int first_use = 0;  // step numbers, both inclusive
    int last_use = 0;
};

struct MemoryPlan {
    std::vector<size_t> offsets;  // one per buffer, 64-byte aligned
    size_t total_bytes = 0;
    size_t unshared_bytes = 0;  // what one place per buffer would need
};

MemoryPlan plan_memory(std::span<const BufferLife> buffers);

}  // namespace lockstep::onednn
