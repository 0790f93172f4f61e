#include <algorithm>

#include "data_loader/kernels/pixel_kernels.h"

namespace lockstep::pixel_kernels::plain {

namespace {

// The weighted sum of bytes that lie `step` apart.
uint8_t weighted(const ResampleAxis& axis, int place, const uint8_t* from, size_t step) {
    const int32_t* weights = axis.fixed(place);
    int64_t sum = int64_t{1} << (ResampleAxis::kPrecisionBits - 1);
    for (int tap = 0; tap < axis.count(place); ++tap) sum += int64_t{from[static_cast<size_t>(tap) * step]} * weights[tap];
    return static_cast<uint8_t>(std::clamp<int64_t>(sum >> ResampleAxis::kPrecisionBits, 0, 255));
}

}  // namespace

void resample_columns(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    const size_t bytes = static_cast<size_t>(in.bytes_per_pixel);
    for (int y = 0; y < out.height; ++y) {
        uint8_t* to = out.row(y);
        for (int x = 0; x < out.width; ++x) {
            const uint8_t* from = in.row(y) + static_cast<size_t>(axis.first(x)) * bytes;
            for (size_t channel = 0; channel < bytes; ++channel) *to++ = weighted(axis, x, from + channel, bytes);
        }
    }
}

void resample_rows(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    const size_t row_bytes = static_cast<size_t>(out.width) * static_cast<size_t>(out.bytes_per_pixel);
    for (int y = 0; y < out.height; ++y) {
        const uint8_t* top = in.row(axis.first(y));
        for (size_t index = 0; index < row_bytes; ++index) out.row(y)[index] = weighted(axis, y, top + index, in.stride_bytes);
    }
}

void normalise(const ImageView& image, const Normalisation& how, bool mirrored, float* out) {
    const size_t step = static_cast<size_t>(image.bytes_per_pixel);
    for (size_t channel = 0; channel < static_cast<size_t>(how.channels); ++channel) {
        for (int y = 0; y < image.height; ++y) {
            const uint8_t* row = image.row(y) + (step == 1 ? 0 : channel);
            for (int x = 0; x < image.width; ++x) {
                const float pixel = row[static_cast<size_t>(mirrored ? image.width - 1 - x : x) * step];
                *out++ = ((pixel / 255.0F + how.shift[channel]) - how.mean[channel]) / how.stddev[channel];
            }
        }
    }
}

}  // namespace lockstep::pixel_kernels::plain
