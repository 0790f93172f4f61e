// The vector loops of pixel_kernels.cc, whose HWY_TARGET_INCLUDE this file is: included once for each instruction set by Highway's
// foreach_target.h, so without a guard. They work on vectors of 32 bytes, two lanes of 16; what has shorter ones gets the plain
// loops.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "data_loader/kernels/pixel_kernels.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::pixel_kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

constexpr size_t kBytes = 32;
using Bytes = hn::FixedTag<uint8_t, kBytes>;
using Words = hn::FixedTag<int16_t, kBytes / 2>;
using Sums = hn::FixedTag<int32_t, kBytes / 4>;
using Quads = hn::FixedTag<uint64_t, kBytes / 8>;
using Floats = hn::FixedTag<float, kBytes / 4>;

constexpr int kHalf = 1 << (ResampleAxis::kPrecisionBits - 1);

// sum + a0 * b0 + a1 * b1 of each pair of 16-bit numbers.
HWY_INLINE hn::Vec<Sums> AddProducts(hn::Vec<Words> a, hn::Vec<Words> b, hn::Vec<Sums> sum) {
    auto unused = hn::Zero(Sums());
    return hn::ReorderWidenMulAccumulate(Sums(), a, b, sum, unused);
}

HWY_INLINE hn::Vec<Sums> Join(hn::Vec<Sums> high, hn::Vec<Sums> low) {
    return hn::ShiftRight<ResampleAxis::kPrecisionBits>(hn::Add(hn::ShiftLeft<ResampleAxis::kLowBits>(high), low));
}

// Four RGBX pixels of each of two rows.
HWY_INLINE hn::Vec<Bytes> FourPixels(const uint8_t* row0, const uint8_t* row1) {
    const hn::Half<Bytes> half;
    return hn::Combine(Bytes(), hn::LoadU(half, row1), hn::LoadU(half, row0));
}

// The weights of a pair, in every place.
HWY_INLINE hn::Vec<Words> Everywhere(const int16_t* pair) {
    int32_t both;
    std::memcpy(&both, pair, sizeof both);
    return hn::BitCast(Words(), hn::Set(Sums(), both));
}

// What two rows have of one output column.
struct TwoSums {
    hn::Vec<Sums> high, low;

    // Adds two of four pixels, whose bytes the pattern puts side by side.
    HWY_INLINE void Add(hn::Vec<Bytes> pixels, hn::Vec<Bytes> pattern, hn::Vec<Words> weight_high, hn::Vec<Words> weight_low) {
        const auto pairs = hn::BitCast(Words(), hn::TableLookupBytesOr0(pixels, pattern));
        high = AddProducts(pairs, weight_high, high);
        low = AddProducts(pairs, weight_low, low);
    }
};

// Four rows at once, so that weights are loaded once for all. `kPairs`: 0 for any number.
template <int kPairs>
HWY_INLINE void FourRows(const uint8_t* const* rows, const ResampleAxis& axis, uint8_t* const* out) {
    alignas(32) static constexpr uint8_t kFirstTwo[kBytes] = {0, 128, 4, 128, 1, 128, 5, 128, 2, 128, 6, 128, 3, 128, 7, 128,
                                                              0, 128, 4, 128, 1, 128, 5, 128, 2, 128, 6, 128, 3, 128, 7, 128};
    const auto first_two = hn::Load(Bytes(), kFirstTwo);
    const auto last_two = hn::Or(first_two, hn::Set(Bytes(), 8));
    const auto zero = hn::Zero(Sums()), half = hn::Set(Sums(), kHalf);
    const hn::FixedTag<uint32_t, 4> pixels_tag;
    const int16_t* weights = axis.split(0);
    const int pairs = kPairs == 0 ? axis.pairs() : kPairs;
    const uint8_t *row0 = rows[0], *row1 = rows[1], *row2 = rows[2], *row3 = rows[3];
    uint8_t *out0 = out[0], *out1 = out[1], *out2 = out[2], *out3 = out[3];
    const int width = axis.output();
    const int* first = axis.split_first();
    for (int x = 0; x < width; ++x) {
        size_t from = 4 * static_cast<size_t>(first[x]);
        TwoSums rows01{zero, half}, rows23{zero, half};
        for (int pair = 0; pair < pairs; pair += 2, from += 16) {
            const auto pixels01 = FourPixels(row0 + from, row1 + from), pixels23 = FourPixels(row2 + from, row3 + from);
            const auto high = Everywhere(weights), low = Everywhere(weights + 2);
            weights += ResampleAxis::kNumbersPerPair;
            rows01.Add(pixels01, first_two, high, low);
            rows23.Add(pixels23, first_two, high, low);
            if (pair + 1 == pairs) break;
            const auto next_high = Everywhere(weights), next_low = Everywhere(weights + 2);
            weights += ResampleAxis::kNumbersPerPair;
            rows01.Add(pixels01, last_two, next_high, next_low);
            rows23.Add(pixels23, last_two, next_high, next_low);
        }
        // Packed lane by lane: rows 0 2 | 1 3.
        const auto words = hn::ReorderDemote2To(Words(), Join(rows01.high, rows01.low), Join(rows23.high, rows23.low));
        const auto pixels = hn::BitCast(pixels_tag, hn::DemoteTo(hn::Half<Bytes>(), words));
        const uint32_t results[4] = {hn::ExtractLane(pixels, 0), hn::ExtractLane(pixels, 2), hn::ExtractLane(pixels, 1),
                                     hn::ExtractLane(pixels, 3)};
        const size_t to = 4 * static_cast<size_t>(x);
        std::memcpy(out0 + to, &results[0], 4);
        std::memcpy(out1 + to, &results[1], 4);
        std::memcpy(out2 + to, &results[2], 4);
        std::memcpy(out3 + to, &results[3], 4);
    }
}

void ResampleColumns(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    if (in.bytes_per_pixel != 4) return plain::resample_columns(in, axis, out);
    for (int y = 0; y < out.height; y += 4) {
        const uint8_t* from[4];
        uint8_t* to[4];
        for (int index = 0; index < 4; ++index) {
            const int row = std::min(y + index, out.height - 1);
            from[index] = in.row(row);
            to[index] = out.row(row);
        }
        switch (axis.pairs()) {
            case 1:
                FourRows<1>(from, axis, to);
                break;
            case 2:
                FourRows<2>(from, axis, to);
                break;
            case 3:
                FourRows<3>(from, axis, to);
                break;
            default:
                FourRows<0>(from, axis, to);
        }
    }
}

// 32 bytes of one output row; `rows` has two inputs for each pair.
template <int kPairs>
HWY_INLINE void RowsBlock(const uint8_t* const* rows, const int16_t* weights, int pairs, ptrdiff_t x, uint8_t* to) {
    const auto zero = hn::Zero(Bytes());
    const auto half = hn::Set(Sums(), kHalf);
    auto high0 = hn::Zero(Sums()), high1 = high0, high2 = high0, high3 = high0;
    auto low0 = half, low1 = half, low2 = half, low3 = half;
    if constexpr (kPairs > 0) pairs = kPairs;
    for (int pair = 0; pair < pairs; ++pair, weights += ResampleAxis::kNumbersPerPair) {
        const auto a = hn::LoadU(Bytes(), rows[2 * pair] + x), b = hn::LoadU(Bytes(), rows[2 * pair + 1] + x);
        const auto weight_high = Everywhere(weights), weight_low = Everywhere(weights + 2);
        const auto lower = hn::InterleaveLower(Bytes(), a, b), upper = hn::InterleaveUpper(Bytes(), a, b);
        const auto numbers0 = hn::BitCast(Words(), hn::InterleaveLower(Bytes(), lower, zero));
        const auto numbers1 = hn::BitCast(Words(), hn::InterleaveUpper(Bytes(), lower, zero));
        const auto numbers2 = hn::BitCast(Words(), hn::InterleaveLower(Bytes(), upper, zero));
        const auto numbers3 = hn::BitCast(Words(), hn::InterleaveUpper(Bytes(), upper, zero));
        high0 = AddProducts(numbers0, weight_high, high0);
        high1 = AddProducts(numbers1, weight_high, high1);
        high2 = AddProducts(numbers2, weight_high, high2);
        high3 = AddProducts(numbers3, weight_high, high3);
        low0 = AddProducts(numbers0, weight_low, low0);
        low1 = AddProducts(numbers1, weight_low, low1);
        low2 = AddProducts(numbers2, weight_low, low2);
        low3 = AddProducts(numbers3, weight_low, low3);
    }
    const hn::Half<Bytes> half_bytes;
    const hn::Half<Quads> half_quads;
    const auto narrow = [&](auto a, auto b) {
        return hn::BitCast(half_quads, hn::DemoteTo(half_bytes, hn::ReorderDemote2To(Words(), a, b)));
    };
    // Eight bytes of the lower lane, eight of the upper one.
    const auto even = narrow(Join(high0, low0), Join(high1, low1)), odd = narrow(Join(high2, low2), Join(high3, low3));
    hn::StoreU(hn::BitCast(half_bytes, hn::InterleaveLower(half_quads, even, odd)), half_bytes, to + x);
    hn::StoreU(hn::BitCast(half_bytes, hn::InterleaveUpper(half_quads, even, odd)), half_bytes, to + x + 16);
}

template <int kPairs>
HWY_INLINE void RowOf(const uint8_t* const* rows, const int16_t* weights, int pairs, ptrdiff_t row_bytes, uint8_t* to) {
    ptrdiff_t x = 0;
    for (; x + 32 <= row_bytes; x += 32) RowsBlock<kPairs>(rows, weights, pairs, x, to);
    if (x < row_bytes) RowsBlock<kPairs>(rows, weights, pairs, row_bytes - 32, to);  // some bytes twice
}

void ResampleRows(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    constexpr int kMaxPairs = 64;  // of one output row; a reduction to a thirtieth
    const ptrdiff_t row_bytes = static_cast<ptrdiff_t>(out.width) * out.bytes_per_pixel;
    if (row_bytes < 32 || axis.pairs() > kMaxPairs) return plain::resample_rows(in, axis, out);
    const uint8_t* rows[2 * kMaxPairs];
    const int pairs = axis.pairs();
    for (int y = 0; y < out.height; ++y) {
        // An input that is not there has weight 0: any readable row does.
        for (int tap = 0; tap < 2 * pairs; ++tap) rows[tap] = in.row(std::min(axis.split_first()[y] + tap, axis.input() - 1));
        switch (pairs) {
            case 1:
                RowOf<1>(rows, axis.split(y), pairs, row_bytes, out.row(y));
                break;
            case 2:
                RowOf<2>(rows, axis.split(y), pairs, row_bytes, out.row(y));
                break;
            default:
                RowOf<0>(rows, axis.split(y), pairs, row_bytes, out.row(y));
        }
    }
}

struct ChannelFactors {
    hn::Vec<Floats> shift, mean, stddev;
};

// Eight pixels of one channel.
template <bool kMirrored>
HWY_INLINE void NormaliseEight(hn::Vec<Sums> pixels, const ChannelFactors& factors, float* out) {
    // pixel / 255 to the last bit, by a product and its correction: a division takes three times as long.
    const auto value = hn::ConvertTo(Floats(), pixels), divisor = hn::Set(Floats(), 255.0F),
               inverse = hn::Set(Floats(), 1.0F / 255.0F);
    const auto near = hn::Mul(value, inverse);
    const auto scaled = hn::MulAdd(hn::NegMulAdd(near, divisor, value), inverse, near);
    const auto result = hn::Div(hn::Sub(hn::Add(scaled, factors.shift), factors.mean), factors.stddev);
    hn::StoreU(kMirrored ? hn::Reverse(Floats(), result) : result, Floats(), out);
}

// Eight pixels of all channels; `out` is the place in the first channel's plane.
template <bool kMirrored>
HWY_INLINE void NormalisePixels(const uint8_t* pixels, int bytes_per_pixel, const ChannelFactors* factors, int channels, float* out,
                                size_t plane) {
    if (bytes_per_pixel == 1) {
        const auto grey = hn::PromoteTo(Sums(), hn::LoadU(hn::Rebind<uint8_t, Sums>(), pixels));
        for (int channel = 0; channel < channels; ++channel, out += plane) NormaliseEight<kMirrored>(grey, factors[channel], out);
        return;
    }
    const hn::RebindToUnsigned<Sums> tag;
    const auto mask = hn::Set(tag, 0xFF);
    const auto rgbx = hn::BitCast(tag, hn::LoadU(Bytes(), pixels));
    NormaliseEight<kMirrored>(hn::BitCast(Sums(), hn::And(rgbx, mask)), factors[0], out);
    if (channels == 1) return;
    NormaliseEight<kMirrored>(hn::BitCast(Sums(), hn::And(hn::ShiftRight<8>(rgbx), mask)), factors[1], out + plane);
    NormaliseEight<kMirrored>(hn::BitCast(Sums(), hn::And(hn::ShiftRight<16>(rgbx), mask)), factors[2], out + 2 * plane);
}

template <bool kMirrored>
void NormaliseImage(const ImageView& image, const Normalisation& how, float* out) {
    ChannelFactors factors[3];
    for (size_t channel = 0; channel < 3; ++channel) {
        factors[channel] = {hn::Set(Floats(), how.shift[channel]), hn::Set(Floats(), how.mean[channel]),
                            hn::Set(Floats(), how.stddev[channel])};
    }
    const size_t width = static_cast<size_t>(image.width), plane = width * static_cast<size_t>(image.height);
    const size_t step = static_cast<size_t>(image.bytes_per_pixel);
    const auto eight = [&](int y, size_t x) {
        float* to = out + static_cast<size_t>(y) * width + (kMirrored ? width - 8 - x : x);
        NormalisePixels<kMirrored>(image.row(y) + x * step, image.bytes_per_pixel, factors, how.channels, to, plane);
    };
    for (int y = 0; y < image.height; ++y) {
        size_t x = 0;
        for (; x + 8 <= width; x += 8) eight(y, x);
        if (x < width) eight(y, width - 8);  // some pixels twice
    }
}

void Normalise(const ImageView& image, const Normalisation& how, bool mirrored, float* out) {
    if (image.width < 8) return plain::normalise(image, how, mirrored, out);
    if (mirrored) {
        NormaliseImage<true>(image, how, out);
    } else {
        NormaliseImage<false>(image, how, out);
    }
}

#else

void ResampleColumns(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    plain::resample_columns(in, axis, out);
}
void ResampleRows(const ImageView& in, const ResampleAxis& axis, const ImageView& out) { plain::resample_rows(in, axis, out); }
void Normalise(const ImageView& image, const Normalisation& how, bool mirrored, float* out) {
    plain::normalise(image, how, mirrored, out);
}

#endif  // HWY_TARGET

}  // namespace lockstep::pixel_kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
