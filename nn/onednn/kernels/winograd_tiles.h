// The inner loops of a Winograd convolution F(4x4, 3x3) with the points 0, 1, -1, 2, -2, infinity (Lavin and Gray, "Fast algorithms
// for convolutional neural networks", arXiv:1509.09308, section 4.3): 4x4 outputs from 6x6 inputs by 36 products instead of 144.
// And of F(4x4, 5x5) with 1/2 and -1/2 besides: 4x4 outputs from 8x8 inputs by 64 products instead of 400.
//
//   result tile = A^T [ (G weights G^T) * (B^T source tile B) ] A
//
// and, by transposing that, the gradient of the weights: G^T [ (B^T source tile B) * (A gradient tile A^T) ] G, summed over tiles.
// "Points" are the 36 or 64 values between the transforms. Tensors are blocked: images, blocks of channels, rows, columns, `block`
// channels.
//
// Chosen at run time for the processor's instruction set (AVX2, AVX-512). `block` must be at most lane_count().
#pragma once

#include <cstdint>

namespace lockstep::onednn::winograd {

constexpr int64_t kTile = 4;  // results along an axis
// Sources that they come from, along an axis, and points, for a kernel of 3 or 5.
constexpr int64_t reach_of(int64_t kernel) { return kTile + kernel - 1; }
constexpr int64_t points_of(int64_t kernel) { return reach_of(kernel) * reach_of(kernel); }

// Floats in a vector of this processor, 16 at most; 0: it has none of 8 or more, these loops must not be called.
int64_t lane_count();

// How a tensor is cut into tiles, in the order images, rows of tiles, tiles of a row. Tile (0, 0) begins `pad` before the image.
struct Grid {
    int64_t images = 0, channel_blocks = 0, height = 0, width = 0;  // of the tensor
    int64_t tile_rows = 0, tile_columns = 0;
    int64_t pad = 0;

    int64_t tiles() const { return images * tile_rows * tile_columns; }
};

// Tiles [first, first + count) of one block of channels. Value of point p of tile `first + t`: points + p * point_stride + t *
// block.
struct Tiles {
    Grid grid;
    int64_t kernel = 3;  // 3 or 5
    int64_t block = 8;
    int64_t channel_block = 0;
    int64_t first = 0, count = 0;
    float* data = nullptr;
    float* points = nullptr;
    int64_t point_stride = 0;
};

void source_to_points(const Tiles& tiles);    // B^T d B; zeros outside the image
void gradient_to_points(const Tiles& tiles);  // A d A^T of 4x4; zeros outside the image
// What happens to a result before it is written: relu(result scale + bias + addend).
struct Finish {
    const float* scale = nullptr;   // one vector of channels; null: 1
    const float* bias = nullptr;    // likewise; null: 0
    const float* addend = nullptr;  // a tensor like the result; null: none
    bool relu = false;
};
void points_to_result(const Tiles& tiles, const Finish& finish);  // A^T m A, written where it lies inside the image

// Weights of one block of output by one block of input channels, [kernel][kernel][input channel][output channel].
struct WeightBlock {
    int64_t kernel = 3;  // 3 or 5
    int64_t block = 8;
    float* weights = nullptr;
    float* points = nullptr;  // of the block's first row and column
    int64_t point_stride = 0;
    int64_t row_stride = 0;  // from one input (turned: output) channel to the next
};
void weights_to_points(const WeightBlock& block);         // G g G^T; a row per input channel
void turned_weights_to_points(const WeightBlock& block);  // turned by 180 degrees and transposed, for the gradient of the source
void points_to_weights(const WeightBlock& block, bool accumulate);  // G^T m G

}  // namespace lockstep::onednn::winograd
