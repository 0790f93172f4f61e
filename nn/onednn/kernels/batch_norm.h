// Batch norm in training, with what stands around it in one pass: the shortcut's addition and the ReLU, or a sigmoid. For tensors
// whose channels lie in blocks of 8 or 16, (N, C/block, H, W, block), f32 or bf16 (arithmetic is fp32), C a multiple of the block.
//
// With x (N, C, H, W), M = N H W and, per channel,
//     mean = sum(x) / M,  variance = sum((x - mean)^2) / M,  gain = scale / sqrt(variance + epsilon)
// forward is y = relu((x - mean) gain + shift + addend), addend and relu where asked for; backward is, with g the gradient of y
// where the ReLU let pass, else 0,
//     d shift = sum(g),  d scale = sum(g (x - mean)) / sqrt(variance + epsilon),  d addend = g,
//     d x = gain (g - d shift / M - (x - mean) d scale / (M sqrt(variance + epsilon))).
// With a sigmoid y = sigmoid((x - mean) gain + shift), and g is the gradient of y times y (1 - y).
// (Ioffe and Szegedy, arXiv:1502.03167, section 3.)
//
// Each is two sweeps over the data: sums, then results. A thread does both for one block of channels before the next, so that the
// second finds the data in a cache where they fit. Sums are made over pieces of a fixed size, in fp32 inside a piece and in double
// over the pieces in their order: results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.h"

namespace lockstep::onednn {

struct NormShape {
    int64_t images = 0, channels = 0, pixels = 0;  // pixels = H W
    int64_t block = 8;                             // 8 or 16
    DataType type = DataType::f32;

    int64_t element_count() const { return images * channels * pixels; }
    size_t mask_bytes() const { return static_cast<size_t>(element_count() / 8); }  // a bit per element
    size_t scratch_floats() const;
};

struct NormForward {
    const void* source = nullptr;
    const void* addend = nullptr;  // null: nothing is added
    void* result = nullptr;        // may be `addend`
    uint8_t* mask = nullptr;       // written: where the ReLU lets pass; null: no ReLU
    bool sigmoid = false;          // applied; with neither addend nor mask
    bool again = false;            // mean and variance are given, not written: the same results once more, to the last bit
    const float* scale = nullptr;  // all per-channel arrays: C; null: 1
    const float* shift = nullptr;  // null: 0
    float* mean = nullptr;         // written
    float* variance = nullptr;     // written, biased
    float epsilon = 0.0F;
    float* scratch = nullptr;
};
void norm_forward(const NormShape& shape, const NormForward& forward);

struct NormBackward {
    const void* source = nullptr;
    const void* gradient = nullptr;
    const void* second_gradient = nullptr;  // added to `gradient`; null: none
    const uint8_t* mask = nullptr;          // null: no ReLU
    const void* activated = nullptr;        // the forward result of a sigmoid; null: no sigmoid
    void* passed = nullptr;                 // written: g, for the addend; null: nobody wants it. May be one of the gradients
    void* source_gradient = nullptr;        // may be one of the gradients, but not `passed`
    const float* scale = nullptr;           // null: 1
    const float* mean = nullptr;
    const float* variance = nullptr;
    float* scale_gradient = nullptr;  // written, or added to when `accumulate`; null as is `scale`
    float* shift_gradient = nullptr;
    bool accumulate = false;
    float epsilon = 0.0F;
    float* scratch = nullptr;
};
void norm_backward(const NormShape& shape, const NormBackward& backward);

}  // namespace lockstep::onednn
