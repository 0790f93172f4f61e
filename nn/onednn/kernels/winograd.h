// A 3x3 or 5x5 convolution of stride 1 by Winograd's algorithm, in fp32 on blocked layouts (winograd_tiles.h says how), in its
// three directions, on the caller's OpenMP pool. Results do not depend on the number of threads. They differ from a direct
// convolution's by rounding: about 1e-6 to 1e-5 of a tensor's norm.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/tensor.h"

namespace lockstep::onednn {

struct WinogradShape {
    int64_t images = 0;
    int64_t block = 8;                      // channels in a block, of all tensors: 8 or 16
    int64_t in_blocks = 0, out_blocks = 0;  // blocks of channels; those filled up are zero and stay so
    int64_t height = 0, width = 0;          // of the source
    int64_t kernel = 3;                     // 3 or 5, along both axes
    int64_t pad = 1;                        // on all sides, less than the kernel

    int64_t out_height() const { return height + 2 * pad - kernel + 1; }
    int64_t out_width() const { return width + 2 * pad - kernel + 1; }
};

// Whether this processor has the loops for blocks of this size.
bool winograd_runs_here(int64_t block);

// The transformed weights, kept from call to call of forward. Weights that have changed in between are noticed by their hash (two
// of them agree by chance once in 2^64), so whoever changes them need not tell.
class WinogradKept {
public:
    explicit WinogradKept(const WinogradShape& shape);

    // Before each use by all threads of a parallel region together of are_others, which takes note of the weights; true: those kept
    // are of others.
    void begin_use() { changed_ = !std::exchange(known_, true); }
    bool are_others(const float* weights);
    float* points() const { return points_.f32().data(); }
    size_t byte_count() const { return points_.bytes().size(); }

private:
    static constexpr int64_t kPieces = 16;  // hashed one by one

    size_t weight_floats_;
    Buffer points_;
    std::array<uint64_t, kPieces> hashes_{};
    std::atomic<bool> changed_ = true;
    bool known_ = false;
};

// Whether the weights' transform is a large part of a forward pass: with few pixels.
bool winograd_should_keep(const WinogradShape& shape);

// Floats of scratch memory, 64-byte aligned, for up to `threads` threads. `kept`: with a WinogradKept.
size_t winograd_forward_scratch(const WinogradShape& shape, int threads, bool kept = false);
size_t winograd_source_gradient_scratch(const WinogradShape& shape, int threads);
size_t winograd_weight_gradient_scratch(const WinogradShape& shape, int threads);

// Tensors: source (images, in_blocks, height, width, block), result and its gradient (images, out_blocks, out_height, out_width,
// block), weights (out_blocks, in_blocks, kernel, kernel, block of in, block of out), scale and bias (out_blocks * block).
struct WinogradForward {
    const float* source = nullptr;
    const float* weights = nullptr;
    const float* scale = nullptr;   // of the sums; null: 1
    const float* bias = nullptr;    // null: none
    const float* addend = nullptr;  // like the result; null: none
    bool relu = false;              // on top
    float* result = nullptr;
    float* scratch = nullptr;
    WinogradKept* kept = nullptr;  // null: the weights are transformed in scratch
};
void winograd_forward(const WinogradShape& shape, const WinogradForward& forward);

struct WinogradSourceGradient {
    const float* result_gradient = nullptr;
    const float* weights = nullptr;
    float* source_gradient = nullptr;
    float* scratch = nullptr;
};
void winograd_source_gradient(const WinogradShape& shape, const WinogradSourceGradient& backward);

struct WinogradWeightGradient {
    const float* source = nullptr;
    const float* result_gradient = nullptr;
    float* weight_gradient = nullptr;
    float* bias_gradient = nullptr;  // null: none
    bool accumulate = false;         // adds to both gradients
    float* scratch = nullptr;
};
void winograd_weight_gradient(const WinogradShape& shape, const WinogradWeightGradient& backward);

}  // namespace lockstep::onednn
