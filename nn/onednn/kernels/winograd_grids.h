// What the two halves of winograd.h's implementation share.
#pragma once

#include "nn/onednn/kernels/winograd.h"
#include "nn/onednn/kernels/winograd_products.h"
#include "nn/onednn/kernels/winograd_tiles.h"

namespace lockstep::onednn::winograd {

constexpr int64_t kApart = 16;  // floats between planes of points, lest they meet in the same lines of the first-level cache

constexpr int64_t divide_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

// One convolution, forward or for the gradient of its source: the tensors it reads and writes, cut into as many tiles.
struct Convolution {
    Grid from, to;
    int64_t kernel = 3;
    int64_t block = 8;
    bool turned = false;  // by weights turned and transposed

    int64_t depth() const { return from.channel_blocks * block; }
    int64_t columns() const { return to.channel_blocks * block; }
    int64_t tiles() const { return to.tiles(); }
    int64_t points() const { return points_of(kernel); }
    int64_t taps() const { return kernel * kernel; }
};

inline Convolution forward_of(const WinogradShape& shape) {
    const int64_t rows = divide_up(shape.out_height(), kTile), columns = divide_up(shape.out_width(), kTile);
    return {.from = {shape.images, shape.in_blocks, shape.height, shape.width, rows, columns, shape.pad},
            .to = {shape.images, shape.out_blocks, shape.out_height(), shape.out_width(), rows, columns, 0},
            .kernel = shape.kernel,
            .block = shape.block};
}

inline Convolution source_gradient_of(const WinogradShape& shape) {
    const int64_t rows = divide_up(shape.height, kTile), columns = divide_up(shape.width, kTile);
    return {.from = {shape.images, shape.out_blocks, shape.out_height(), shape.out_width(), rows, columns,
                     shape.kernel - 1 - shape.pad},
            .to = {shape.images, shape.in_blocks, shape.height, shape.width, rows, columns, 0},
            .kernel = shape.kernel,
            .block = shape.block,
            .turned = true};
}

}  // namespace lockstep::onednn::winograd
