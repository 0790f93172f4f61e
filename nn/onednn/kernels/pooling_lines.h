// The inner loops of pooling: one line of the result, of one block of channels. Chosen at run time for the processor's instruction
// set (AVX2, AVX-512); others run the plain loops, which the tests compare them with.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace lockstep::onednn::pool_lines {

struct Span {  // half open
    int64_t begin = 0, end = 0;
};

// Pixel `w` of the line reads the source's pixels in `rows` x `columns[w]`. Forward: source is the input, the line is one of the
// output; backward the other way round. The place of a pair in its window is
//     place + row place_per_row + column place_per_column + w place_per_pixel.
struct Line {
    DataType type = DataType::f32;
    int64_t block = 8;             // channels in a vector: 8 or 16
    const void* source = nullptr;  // the plane's first element
    int64_t source_width = 0;      // pixels
    Span rows;
    const Span* columns = nullptr;
    void* result = nullptr;  // the line's first element
    int64_t width = 0;
    uint8_t* winners = nullptr;               // forward: of the line; null: not wanted
    const uint8_t* source_winners = nullptr;  // backward: of the source's plane
    int64_t place = 0, place_per_row = 0, place_per_column = 0, place_per_pixel = 0;
    const float* row_quotients = nullptr;  // forward: of the line's row; backward: by source row
    const float* column_quotients = nullptr;
    bool past_caches = false;  // results are too many to stay in a cache: store them around it
};

void max_forward(const Line& line);
void max_backward(const Line& line);
void average_forward(const Line& line);
void average_backward(const Line& line);

namespace plain {
void max_forward(const Line& line);
void max_backward(const Line& line);
void average_forward(const Line& line);
void average_backward(const Line& line);
}  // namespace plain

}  // namespace lockstep::onednn::pool_lines
