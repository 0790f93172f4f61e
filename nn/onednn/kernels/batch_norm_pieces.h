// The inner loops of batch norm: a piece is `planes` runs of `pixels` vectors of one block of channels. Chosen at run time for the
// processor's instruction set (AVX2, AVX-512); others run the plain loops, which the tests compare them with.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace lockstep::onednn::norm_pieces {

struct Piece {
    DataType type = DataType::f32;
    int64_t block = 8;         // channels in a vector: 8 or 16
    int64_t planes = 1;        // images
    int64_t plane_stride = 0;  // elements from one image to the next
    int64_t pixels = 0;        // of each plane
    const void* source = nullptr;
    const void* other = nullptr;  // forward: the addend; backward: the second gradient; null: none
    const void* gradient = nullptr;
    void* result = nullptr;
    void* passed = nullptr;           // null: none
    uint8_t* mask = nullptr;          // a bit per element, planes as far apart as the data's; null: no ReLU
    bool sigmoid = false;             // forward: applied to the result; with neither `other` nor `mask`
    const void* activated = nullptr;  // backward: the sigmoid's results; null: no sigmoid
    const float* mean = nullptr;      // the block's own
    const float* gain = nullptr;
    const float* shift = nullptr;  // forward: shift; backward: the constant part
    const float* slope = nullptr;  // backward: what (x - mean) is multiplied by
    float* sums = nullptr;         // two per channel: first[block], second[block]
    bool past_caches = false;      // results are too many to stay in a cache: store them around it

    int64_t values() const { return planes * pixels; }
};

// sums = mean of the piece, sum of squared distances from it.
void statistics(const Piece& piece);
// result = relu((source - mean) gain + shift + other), mask; or sigmoid((source - mean) gain + shift).
void normalise(const Piece& piece);
// g = mask ? gradient + other : 0, or gradient activated (1 - activated); passed = g; sums = sum(g), sum(g (source - mean)).
void reduce(const Piece& piece);
// result = gain g + slope (source - mean) + shift, with g = passed where there is one.
void differentiate(const Piece& piece);

namespace plain {
void statistics(const Piece& piece);
void normalise(const Piece& piece);
void reduce(const Piece& piece);
void differentiate(const Piece& piece);
}  // namespace plain

}  // namespace lockstep::onednn::norm_pieces
