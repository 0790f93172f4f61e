// Bilinear resize with antialias, byte for byte that of Pillow (Image.resize with BILINEAR): a triangle filter as wide as the
// reduction, horizontal pass first, each pass rounded to 8 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "data_loader/image.h"

namespace lockstep {

// The weights of one axis: output position p sums `count[p]` inputs from `first[p]` on with weights[p * stride ...], scaled by
// 2^22.
struct ResampleAxis {
    int input = 0, output = 0;
    int stride = 0;
    std::vector<int> first, count;
    std::vector<int32_t> weights;
    std::vector<double> scratch;

    // Reuses memory; nothing to do when the sizes are those of the last call.
    void prepare(int input_size, int output_size);
};

// One per thread, reused.
class Resampler {
public:
    Resampler();
    // `out` must not be the buffer behind `in`. A side whose size stays is not filtered.
    ImageView resize(const ImageView& in, int width, int height, Image& out);
    // The slow twin: plain loops, no vector code.
    static void resize_reference(const ImageView& in, int width, int height, Image& out);

private:
    using Pass = void (*)(const ImageView& in, const ResampleAxis& axis, const ImageView& out);

    ResampleAxis columns_, rows_;
    Image between_;
    Pass horizontal_;
    Pass vertical_;
};

}  // namespace lockstep
