// The inner loops of a 1x1 convolution: products of a few pixels' channels with the weights, whose sums stay in registers.
//
// Chosen at run time for the processor's instruction set (AVX2, AVX-512). `block` must be at most lane_count(). Each sum is made
// over the input channels in their order, by one multiply-add each, whatever the sizes of a job: results have the same bits.
#pragma once

#include <cstdint>

namespace lockstep::onednn::pointwise {

// Floats in a vector of this processor, 16 at most; 0: it has none of 8 or more, these loops must not be called.
int64_t lane_count();

// What happens to a sum before it is written: relu(sum scale + bias + addend).
struct Finish {
    const float* scale = nullptr;   // per output channel; null: 1
    const float* bias = nullptr;    // likewise; null: 0
    const float* addend = nullptr;  // lies like the result; null: none
    bool relu = false;
};

// result[pixel][column] (+)= sum over k of left[pixel][k] right[k][column]. Layouts: left [k / block][pixel][block] and result
// [column / block][pixel][block] with each pixel at a place of its own, right [column / block][k][block].
struct Product {
    int64_t block = 8;
    int64_t pixels = 0, depth_blocks = 0, column_blocks = 0;
    const float* left = nullptr;
    int64_t left_stride = 0;               // floats from one block of k to the next
    const int64_t* left_places = nullptr;  // of the pixels, in floats from `left`
    const float* right = nullptr;
    int64_t right_stride = 0;  // from one block of columns to the next
    float* result = nullptr;
    int64_t result_stride = 0;               // from one block of columns to the next
    const int64_t* result_places = nullptr;  // of the pixels, in floats from `result`
    bool onto = false;                       // adds to what the result holds
    bool complete = true;                    // the sums are: they are finished
    Finish finish;                           // from the first column on
};
void multiply(const Product& product);
int64_t product_rows();  // pixels that fill the registers

}  // namespace lockstep::onednn::pointwise
