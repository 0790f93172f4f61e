// The parameter-free shortcut of the CIFAR residual networks: every stride-th pixel, zero channels on both sides. Works on any
// layout whose channels stand in blocks (plain: blocks of one), padding included.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::onednn {

// Strides in elements. Channel c lies at (c / block) * block_stride + c % block.
struct ChannelBlocks {
    int64_t channels = 0, height = 0, width = 0;
    int64_t block = 1, block_count = 0;
    int64_t image_stride = 0, block_stride = 0, row_stride = 0, pixel_stride = 0;
};

struct PadShortcut {
    int64_t batch = 0;
    int64_t stride = 1;
    int64_t channels_before = 0;  // zero channels in front of the input's
    ChannelBlocks small;          // the input
    ChannelBlocks large;          // the output
    size_t element_bytes = 4;
};

void pad_shortcut_forward(const PadShortcut& shape, const void* input, void* output);

// Writes the whole input gradient, zeros where a pixel was skipped.
void pad_shortcut_backward(const PadShortcut& shape, const void* output_gradient, void* input_gradient);

}  // namespace lockstep::onednn
