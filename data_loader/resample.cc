#include "data_loader/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lockstep {

namespace {

constexpr int kPrecisionBits = 32 - 8 - 2;
constexpr int32_t kHalf = 1 << (kPrecisionBits - 1);
constexpr int kBlock = 16;  // bytes of a row summed at a time in the vertical pass

using Int4 [[gnu::vector_size(16)]] = int32_t;
using Byte4 [[gnu::vector_size(4)]] = uint8_t;
using Int8 [[gnu::vector_size(32)]] = int32_t;
using Byte8 [[gnu::vector_size(8)]] = uint8_t;

Int4 load_pixel(const uint8_t* pixel) {
    Byte4 bytes;
    std::memcpy(&bytes, pixel, sizeof bytes);
    return __builtin_convertvector(bytes, Int4);
}

// The weights are positive and sum to 2^22 within a few units, so sums stay in [0, 255] after the shift: nothing to clip.
[[gnu::always_inline]] inline void horizontal_rgbx(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    for (int y = 0; y < out.height; ++y) {
        const uint8_t* row = in.row(y);
        uint8_t* to = out.row(y);
        for (int x = 0; x < out.width; ++x, to += 4) {
            const size_t place = static_cast<size_t>(x);
            const uint8_t* pixel = row + 4 * static_cast<ptrdiff_t>(axis.first[place]);
            const int32_t* weights = axis.weights.data() + place * static_cast<size_t>(axis.stride);
            Int4 sum = {kHalf, kHalf, kHalf, kHalf};
            for (int tap = 0; tap < axis.count[place]; ++tap) sum += load_pixel(pixel + 4 * tap) * weights[tap];
            const Byte4 bytes = __builtin_convertvector(sum >> kPrecisionBits, Byte4);
            std::memcpy(to, &bytes, sizeof bytes);
        }
    }
}

[[gnu::always_inline]] inline void horizontal_grey(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    for (int y = 0; y < out.height; ++y) {
        const uint8_t* row = in.row(y);
        uint8_t* to = out.row(y);
        for (int x = 0; x < out.width; ++x) {
            const size_t place = static_cast<size_t>(x);
            const uint8_t* pixel = row + axis.first[place];
            const int32_t* weights = axis.weights.data() + place * static_cast<size_t>(axis.stride);
            int32_t sum = kHalf;
            for (int tap = 0; tap < axis.count[place]; ++tap) sum += pixel[tap] * weights[tap];
            to[x] = static_cast<uint8_t>(sum >> kPrecisionBits);
        }
    }
}

[[gnu::always_inline]] inline void horizontal_any(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    if (in.bytes_per_pixel == 4) {
        horizontal_rgbx(in, axis, out);
    } else {
        horizontal_grey(in, axis, out);
    }
}

// Sums `length` <= kBlock bytes of a column strip over the taps.
[[gnu::always_inline]] inline void vertical_strip(const uint8_t* top, size_t stride, const int32_t* weights, int taps, int length,
                                                  uint8_t* to) {
    int32_t sums[kBlock];
    for (int32_t& sum : sums) sum = kHalf;
    for (int tap = 0; tap < taps; ++tap) {
        const uint8_t* from = top + static_cast<size_t>(tap) * stride;
        for (int index = 0; index < length; ++index) sums[index] += from[index] * weights[tap];
    }
    for (int index = 0; index < length; ++index) to[index] = static_cast<uint8_t>(sums[index] >> kPrecisionBits);
}

// The same for exactly kBlock bytes, with the sums in registers.
[[gnu::always_inline]] inline void vertical_block(const uint8_t* top, size_t stride, const int32_t* weights, int taps,
                                                  uint8_t* to) {
    Int8 low = Int8{} + kHalf, high = Int8{} + kHalf;
    for (int tap = 0; tap < taps; ++tap, top += stride) {
        Byte8 bytes[2];
        std::memcpy(bytes, top, sizeof bytes);
        low += __builtin_convertvector(bytes[0], Int8) * weights[tap];
        high += __builtin_convertvector(bytes[1], Int8) * weights[tap];
    }
    const Byte8 result[2] = {__builtin_convertvector(low >> kPrecisionBits, Byte8),
                             __builtin_convertvector(high >> kPrecisionBits, Byte8)};
    std::memcpy(to, result, sizeof result);
}

[[gnu::always_inline]] inline void vertical_any(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    const int row_bytes = out.width * out.bytes_per_pixel;
    for (int y = 0; y < out.height; ++y) {
        const size_t place = static_cast<size_t>(y);
        const int32_t* weights = axis.weights.data() + place * static_cast<size_t>(axis.stride);
        const uint8_t* top = in.row(axis.first[place]);
        uint8_t* to = out.row(y);
        int x = 0;
        for (; x + kBlock <= row_bytes; x += kBlock) vertical_block(top + x, in.stride_bytes, weights, axis.count[place], to + x);
        if (x < row_bytes) vertical_strip(top + x, in.stride_bytes, weights, axis.count[place], row_bytes - x, to + x);
    }
}

void horizontal_plain(const ImageView& in, const ResampleAxis& axis, const ImageView& out) { horizontal_any(in, axis, out); }
void vertical_plain(const ImageView& in, const ResampleAxis& axis, const ImageView& out) { vertical_any(in, axis, out); }
// The same loops compiled for wider vectors; integer sums give the same bits.
[[gnu::target("avx2")]] void horizontal_avx2(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    horizontal_any(in, axis, out);
}
[[gnu::target("avx2")]] void vertical_avx2(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    vertical_any(in, axis, out);
}

}  // namespace

void ResampleAxis::prepare(int input_size, int output_size) {
    if (input == input_size && output == output_size) return;
    input = input_size;
    output = output_size;
    const double scale = static_cast<double>(input) / output;
    const double filter_scale = std::max(scale, 1.0);
    const double support = filter_scale;  // the triangle reaches one (scaled) pixel to each side
    stride = static_cast<int>(std::ceil(support)) * 2 + 1;
    const size_t places = static_cast<size_t>(output);
    first.resize(places);
    count.resize(places);
    weights.assign(places * static_cast<size_t>(stride), 0);
    scratch.resize(static_cast<size_t>(stride));
    for (size_t place = 0; place < places; ++place) {
        const double centre = (static_cast<double>(place) + 0.5) * scale;
        const int begin = std::max(static_cast<int>(centre - support + 0.5), 0);
        const int end = std::min(static_cast<int>(centre + support + 0.5), input);
        double total = 0.0;
        for (int tap = 0; tap < end - begin; ++tap) {
            const double distance = std::abs((tap + begin - centre + 0.5) * (1.0 / filter_scale));
            const double weight = distance < 1.0 ? 1.0 - distance : 0.0;
            scratch[static_cast<size_t>(tap)] = weight;
            total += weight;
        }
        for (int tap = 0; tap < end - begin; ++tap) {
            double weight = scratch[static_cast<size_t>(tap)];
            if (total != 0.0) weight /= total;
            weights[place * static_cast<size_t>(stride) + static_cast<size_t>(tap)] =
                static_cast<int32_t>(0.5 + weight * (1 << kPrecisionBits));
        }
        first[place] = begin;
        count[place] = end - begin;
    }
    // One tap count for all places, filled up with zero weights: inner loops of equal length are predicted well.
    const int taps = *std::max_element(count.begin(), count.end());
    for (size_t place = 0; place < places; ++place) {
        const int beyond = std::max(first[place] + taps - input, 0);
        int32_t* mine = weights.data() + place * static_cast<size_t>(stride);
        std::rotate(mine, mine + taps - beyond, mine + taps);  // the last `beyond` weights are zero
        first[place] -= beyond;
        count[place] = taps;
    }
}

Resampler::Resampler() {
    const bool wide = __builtin_cpu_supports("avx2") != 0;
    horizontal_ = wide ? horizontal_avx2 : horizontal_plain;
    vertical_ = wide ? vertical_avx2 : vertical_plain;
}

ImageView Resampler::resize(const ImageView& in, int width, int height, Image& out) {
    const bool filter_columns = width != in.width;
    const bool filter_rows = height != in.height;
    if (!filter_columns && !filter_rows) {
        const ImageView copy = out.reshape(width, height, in.bytes_per_pixel);
        for (int y = 0; y < height; ++y) std::memcpy(copy.row(y), in.row(y), copy.stride_bytes);
        return copy;
    }
    if (!filter_rows) {
        columns_.prepare(in.width, width);
        horizontal_(in, columns_, out.reshape(width, height, in.bytes_per_pixel));
        return out.view();
    }
    rows_.prepare(in.height, height);
    ImageView middle = in;
    if (filter_columns) {
        columns_.prepare(in.width, width);
        middle = between_.reshape(width, in.height, in.bytes_per_pixel);
        horizontal_(in, columns_, middle);
    }
    vertical_(middle, rows_, out.reshape(width, height, in.bytes_per_pixel));
    return out.view();
}

void Resampler::resize_reference(const ImageView& in, int width, int height, Image& out) {
    ResampleAxis columns, rows;
    columns.prepare(in.width, width);
    rows.prepare(in.height, height);
    const int bytes = in.bytes_per_pixel;
    Image between;
    const ImageView middle = between.reshape(width, in.height, bytes);
    const ImageView result = out.reshape(width, height, bytes);
    const auto weighted = [](const ResampleAxis& axis, int place, auto sample) {
        int64_t sum = kHalf;
        for (int tap = 0; tap < axis.count[static_cast<size_t>(place)]; ++tap) {
            sum += int64_t{sample(axis.first[static_cast<size_t>(place)] + tap)} *
                   axis.weights[static_cast<size_t>(place * axis.stride + tap)];
        }
        return static_cast<uint8_t>(std::clamp<int64_t>(sum >> kPrecisionBits, 0, 255));
    };
    for (int y = 0; y < in.height; ++y) {
        for (int x = 0; x < width * bytes; ++x) {
            middle.row(y)[x] = weighted(columns, x / bytes, [&](int from) { return in.row(y)[from * bytes + x % bytes]; });
        }
    }
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width * bytes; ++x) {
            result.row(y)[x] = weighted(rows, y, [&](int from) { return middle.row(from)[x]; });
        }
    }
}

}  // namespace lockstep
