// Max and average pooling, forward and backward. For tensors whose channels lie in blocks of 8 or 16, (N, C/block, H, W, block),
// padding channels included, f32 or bf16 (arithmetic is fp32).
//
// Window (row, column) covers the input pixels [row stride - pad, row stride - pad + kernel) of each axis, cut to the image.
// Padding is never a maximum. Among equal values the first in row-major order wins, and a NaN wins over all numbers. Forward notes
// each winner's place in its window in one byte. Backward asks for each input pixel which windows took it, in their order, and
// writes it once.
//
// Each element of a result is computed by one thread in a fixed order: results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "nn/onednn/kernels/pooling_lines.h"

namespace lockstep::onednn {

struct PoolAxis {
    int64_t input = 0, output = 0, kernel = 0, stride = 1, pad = 0;
};

struct PoolShape {
    int64_t planes = 0;  // images * blocks of channels
    int64_t block = 8;   // 8 or 16
    DataType type = DataType::f32;
    PoolAxis rows, columns;
    bool count_padding = false;  // average: the divisor counts the window's part inside the padded image, not inside the image

    int64_t output_count() const { return planes * rows.output * columns.output * block; }
};

// Made before the first step; its calls allocate nothing and may come from any one thread at a time.
class Pooling {
public:
    static constexpr int64_t kLargestWindow = 256;  // pixels whose places a byte can tell

    explicit Pooling(const PoolShape& shape);

    // `winners`: a byte per element of the result, written; null: nobody will ask. Not null only for windows up to kLargestWindow.
    void max_forward(const void* source, void* result, uint8_t* winners) const;
    void max_backward(const void* gradient, const uint8_t* winners, void* source_gradient) const;
    void average_forward(const void* source, void* result) const;
    void average_backward(const void* gradient, void* source_gradient) const;

private:
    using Span = pool_lines::Span;
    struct Axis {
        std::vector<Span> windows;     // by output position: the input positions it covers
        std::vector<Span> covering;    // by input position: the output positions that cover it
        std::vector<float> quotients;  // by output position: 1 / what an average divides by
    };
    Axis axis_of(const PoolAxis& axis) const;
    template <typename Work>
    void for_each_line(int64_t lines_per_plane, const Work& work) const;
    pool_lines::Line forward_line(int64_t plane, int64_t row, const void* source, void* result) const;
    pool_lines::Line backward_line(int64_t plane, int64_t row, const void* gradient, void* source_gradient) const;

    PoolShape shape_;
    Axis rows_, columns_;
};

}  // namespace lockstep::onednn
