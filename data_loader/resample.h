// Resize with separable filters. Usual: byte for byte that of Pillow (Image.resize), horizontal pass first, each pass rounded to
// 8 bits; so it is what torchvision does with Pillow's images.
#pragma once

#include <cstdint>
#include <vector>

#include "data_loader/image.h"
#include "data_loader/resample_axis.h"

namespace lockstep {

enum class Rounding : uint8_t {
    each_pass,  // Pillow: 22-bit weights, both passes rounded to 8 bits
    once,       // torchvision on tensors: both passes in fp32, then one rounding, half to even
};

struct ResizeOptions {
    Filter filter = Filter::bilinear;
    Rounding rounding = Rounding::each_pass;
    // The part of the image that is scaled, as Pillow's `box`: borders may lie inside pixels, and filters reach beyond them where
    // there are pixels. Empty ranges: all of it.
    AxisRange columns{}, rows{};
};

// One per thread, reused.
class Resampler {
public:
    // `out` must not be the buffer behind `in`. A side whose size stays is not filtered.
    ImageView resize(const ImageView& in, int width, int height, Image& out, const ResizeOptions& options = {});
    // The slow twin of Rounding::each_pass: plain loops, no vector code.
    static void resize_reference(const ImageView& in, int width, int height, Image& out, const ResizeOptions& options = {});

private:
    ImageView resize_rounding_once(const ImageView& in, int width, int height, Image& out);

    ResampleAxis columns_, rows_;
    Image between_;
    std::vector<float> float_rows_;
};

}  // namespace lockstep
