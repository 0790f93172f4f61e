#include "data_loader/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data_loader/kernels/pixel_kernels.h"

namespace lockstep {

namespace {

AxisRange range_or_all(const AxisRange& range, int size) {
    return range == AxisRange{} ? AxisRange{0.0, static_cast<double>(size)} : range;
}

bool stays(const AxisRange& range, int input, int output) {
    return input == output && range == AxisRange{0.0, static_cast<double>(input)};
}

// Rows that the vertical pass will read.
ImageView rows_needed(const ImageView& in, const ResampleAxis& rows) {
    const int last = rows.output() - 1;
    return in.crop(0, rows.first(0), in.width, rows.first(last) + rows.count(last) - rows.first(0));
}

ImageView copy_of(const ImageView& in, Image& out) {
    const ImageView copy = out.reshape(in.width, in.height, in.bytes_per_pixel);
    for (int y = 0; y < in.height; ++y) std::memcpy(copy.row(y), in.row(y), copy.stride_bytes);
    return copy;
}

// `middle` holds what lies between the passes: all rows have a place there, only the needed ones are filled.
void two_passes(const ImageView& in, const ResampleAxis& columns, const ResampleAxis& rows, Image& middle, Image& out) {
    const ImageView between = middle.reshape(columns.output(), in.height, in.bytes_per_pixel);
    const ImageView needed = rows_needed(in, rows);
    pixel_kernels::resample_columns(needed, columns, between.crop(0, rows.first(0), between.width, needed.height));
    pixel_kernels::resample_rows(between, rows, out.reshape(columns.output(), rows.output(), in.bytes_per_pixel));
}

}  // namespace

ImageView Resampler::resize(const ImageView& in, int width, int height, Image& out, const ResizeOptions& options) {
    const AxisRange columns = range_or_all(options.columns, in.width), rows = range_or_all(options.rows, in.height);
    const bool filter_columns = !stays(columns, in.width, width), filter_rows = !stays(rows, in.height, height);
    if (!filter_columns && !filter_rows) return copy_of(in, out);
    if (filter_columns || options.rounding == Rounding::once) columns_.prepare(in.width, columns, width, options.filter);
    if (filter_rows || options.rounding == Rounding::once) rows_.prepare(in.height, rows, height, options.filter);
    if (options.rounding == Rounding::once) return resize_rounding_once(in, width, height, out);
    if (!filter_rows) {
        pixel_kernels::resample_columns(in, columns_, out.reshape(width, height, in.bytes_per_pixel));
    } else if (!filter_columns) {
        pixel_kernels::resample_rows(in, rows_, out.reshape(width, height, in.bytes_per_pixel));
    } else {
        two_passes(in, columns_, rows_, between_, out);
    }
    return out.view();
}

void Resampler::resize_reference(const ImageView& in, int width, int height, Image& out, const ResizeOptions& options) {
    ResampleAxis columns, rows;
    columns.prepare(in.width, range_or_all(options.columns, in.width), width, options.filter);
    rows.prepare(in.height, range_or_all(options.rows, in.height), height, options.filter);
    Image between;
    const ImageView middle = between.reshape(width, in.height, in.bytes_per_pixel);
    pixel_kernels::plain::resample_columns(in, columns, middle);
    pixel_kernels::plain::resample_rows(middle, rows, out.reshape(width, height, in.bytes_per_pixel));
}

// As PyTorch's separable interpolation: the horizontal sums of all rows in fp32, then the vertical ones, then torch.round.
ImageView Resampler::resize_rounding_once(const ImageView& in, int width, int height, Image& out) {
    const size_t bytes = static_cast<size_t>(in.bytes_per_pixel), row_floats = static_cast<size_t>(width) * bytes;
    float_rows_.resize(row_floats * static_cast<size_t>(in.height));
    for (int y = 0; y < in.height; ++y) {
        float* to = float_rows_.data() + static_cast<size_t>(y) * row_floats;
        for (int x = 0; x < width; ++x) {
            const uint8_t* from = in.row(y) + static_cast<size_t>(columns_.first(x)) * bytes;
            const double* weights = columns_.exact(x);
            for (size_t channel = 0; channel < bytes; ++channel) {
                float sum = 0.0F;
                for (int tap = 0; tap < columns_.count(x); ++tap) {
                    sum += static_cast<float>(from[static_cast<size_t>(tap) * bytes + channel]) * static_cast<float>(weights[tap]);
                }
                *to++ = sum;
            }
        }
    }
    const ImageView result = out.reshape(width, height, in.bytes_per_pixel);
    for (int y = 0; y < height; ++y) {
        const float* top = float_rows_.data() + static_cast<size_t>(rows_.first(y)) * row_floats;
        const double* weights = rows_.exact(y);
        for (size_t index = 0; index < row_floats; ++index) {
            float sum = 0.0F;
            for (int tap = 0; tap < rows_.count(y); ++tap) {
                sum += top[static_cast<size_t>(tap) * row_floats + index] * static_cast<float>(weights[tap]);
            }
            result.row(y)[index] = static_cast<uint8_t>(std::nearbyint(std::clamp(sum, 0.0F, 255.0F)));
        }
    }
    return result;
}

}  // namespace lockstep
