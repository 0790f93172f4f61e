// The inner loops over pixels: the two passes of a resize, and pixels to normalised floats. The best instruction set of this
// processor is taken at run time; integer sums and divisions are exact, so all give the same bits.
#pragma once

#include <array>

#include "data_loader/image.h"
#include "data_loader/resample_axis.h"

namespace lockstep::pixel_kernels {

// out.width = axis.output(); the rows are those of `in`, whose columns the axis counts. Each sum is rounded to 8 bits and clipped.
void resample_columns(const ImageView& in, const ResampleAxis& axis, const ImageView& out);
// out.height = axis.output(); equal widths.
void resample_rows(const ImageView& in, const ResampleAxis& axis, const ImageView& out);

// Of channel c: ((pixel / 255 + shift[c]) - mean[c]) / stddev[c], every operation in fp32, as torchvision's ToTensor and Normalize.
struct Normalisation {
    int channels = 3;
    std::array<float, 3> shift{}, mean{}, stddev{1.0F, 1.0F, 1.0F};
};
// `out`: (channels, height, width), plain; a grey image is repeated. `mirrored`: left and right are exchanged.
void normalise(const ImageView& image, const Normalisation& how, bool mirrored, float* out);

// The plain loops that the above are compared with.
namespace plain {
void resample_columns(const ImageView& in, const ResampleAxis& axis, const ImageView& out);
void resample_rows(const ImageView& in, const ResampleAxis& axis, const ImageView& out);
void normalise(const ImageView& image, const Normalisation& how, bool mirrored, float* out);
}  // namespace plain

}  // namespace lockstep::pixel_kernels
