// The products between the transforms of a Winograd convolution (winograd_tiles.h says how), at one point each. Chosen at run time
// for the processor's instruction set; `block` must be at most lane_count().
#pragma once

#include <cstdint>

namespace lockstep::onednn::winograd {

// result[tile][column] = sum over k of left[tile][k] right[k][column] at one point. Layouts: left [k / block][tile][block], result
// [column / block][tile][block], both `tile_stride` tiles apart; right: panels of two blocks of columns (the last may be one),
// [k][columns of the panel].
struct Product {
    int64_t block = 8;
    int64_t tiles = 0;  // a multiple of product_rows()
    int64_t tile_stride = 0;
    int64_t depth_blocks = 0, column_blocks = 0;
    const float* left = nullptr;
    const float* right = nullptr;
    float* result = nullptr;
};
void multiply(const Product& product);
int64_t product_rows();

// sum[row][column] (+)= sum over tiles of left[tile][row] right[tile][column] at one point. Layouts: left [row /
// block][tile][block], right likewise, sum [row][column].
struct OuterProduct {
    int64_t block = 8;
    int64_t tiles = 0, tile_stride = 0;
    int64_t row_block_begin = 0, row_block_end = 0;  // which blocks of rows to do
    int64_t column_blocks = 0;
    const float* left = nullptr;
    const float* right = nullptr;
    float* sum = nullptr;
    bool accumulate = false;
};
void multiply_outer(const OuterProduct& product);

}  // namespace lockstep::onednn::winograd
