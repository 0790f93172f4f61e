// A 1x1 convolution in fp32 on blocked layouts (pointwise_tiles.h has the loops), on the caller's OpenMP pool. Plain arithmetic:
// each sum is made over the channels in their order, so results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::onednn {

struct PointwiseShape {
    int64_t images = 0;
    int64_t block = 8;                      // channels in a block, of all tensors: 8 or 16
    int64_t in_blocks = 0, out_blocks = 0;  // blocks of channels, all full
    int64_t height = 0, width = 0;          // of the source
    int64_t stride = 1;                     // along both axes

    int64_t out_height() const { return (height - 1) / stride + 1; }
    int64_t out_width() const { return (width - 1) / stride + 1; }
};

// Whether this processor has the loops for blocks of this size.
bool pointwise_runs_here(int64_t block);

// Floats of scratch memory, 64-byte aligned, for `threads` threads; 0 without a stride.
size_t pointwise_forward_scratch(const PointwiseShape& shape, int threads);

// Tensors: source (images, in_blocks, height, width, block), result and addend (images, out_blocks, out_height, out_width, block),
// weights (out_blocks, in_blocks, block of in, block of out), scale and bias (out_blocks * block). The result is none of the
// others.
struct PointwiseForward {
    const float* source = nullptr;
    const float* weights = nullptr;
    const float* scale = nullptr;   // of the sums; null: 1
    const float* bias = nullptr;    // null: none
    const float* addend = nullptr;  // null: none
    bool relu = false;              // on top
    float* result = nullptr;
    float* scratch = nullptr;
};
void pointwise_forward(const PointwiseShape& shape, const PointwiseForward& forward);

}  // namespace lockstep::onednn
