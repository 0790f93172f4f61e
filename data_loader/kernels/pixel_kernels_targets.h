// The vector loops of pixel_kernels.cc, whose HWY_TARGET_INCLUDE this file is: included once for each instruction set by Highway's
// foreach_target.h, so without a guard. They work on vectors of 32 bytes, two lanes of 16; what has shorter ones gets the plain loops.
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

// Two RGBX pixels, the same ones in both lanes, as pairs of 16-bit numbers: r r g g b b x x.
HWY_INLINE hn::Vec<Words> TwoPixels(const uint8_t* pixels, hn::Vec<Bytes> pattern) {
    uint64_t bits;
    std::memcpy(&bits, pixels, sizeof bits);
    return hn::BitCast(Words(), hn::TableLookupBytesOr0(hn::BitCast(Bytes(), hn::Set(Quads(), bits)), pattern));
}

// kRows rows at once, so that weights are loaded once for all. The lower lane sums the high parts of the weights, the upper lane
// the low ones.
template <int kRows>
HWY_INLINE void ColumnsOfRows(const ImageView& in, const ResampleAxis& axis, const ImageView& out, int y) {
    alignas(32) static constexpr uint8_t kPattern[kBytes] = {0, 128, 4, 128, 1, 128, 5, 128, 2, 128, 6, 128, 3, 128, 7, 128,
                                                         0, 128, 4, 128, 1, 128, 5, 128, 2, 128, 6, 128, 3, 128, 7, 128};
    alignas(32) static constexpr int32_t kStart[8] = {0, 0, 0, 0, kHalf, kHalf, kHalf, kHalf};
    const auto pattern = hn::Load(Bytes(), kPattern);
    const auto start = hn::Load(Sums(), kStart);
    const int16_t* weights = axis.split(0);
    const int pairs = axis.pairs();
    const uint8_t* top = in.row(y);
    for (int x = 0; x < out.width; ++x) {
        const uint8_t* from = top + 4 * static_cast<ptrdiff_t>(axis.first(x));
        hn::Vec<Sums> sums[kRows];
        for (int row = 0; row < kRows; ++row) sums[row] = start;
        for (int pair = 0; pair < pairs; ++pair, from += 8, weights += ResampleAxis::kNumbersPerPair) {
            const auto weight = hn::LoadU(Words(), weights);
            for (int row = 0; row < kRows; ++row) {
                const uint8_t* pixels = from + static_cast<size_t>(row) * in.stride_bytes;
                sums[row] = AddProducts(TwoPixels(pixels, pattern), weight, sums[row]);
            }
        }
        for (int row = 0; row < kRows; row += 2) {
            const int other = std::min(row + 1, kRows - 1);
            const auto high = hn::ConcatLowerLower(Sums(), sums[other], sums[row]);
            const auto low = hn::ConcatUpperUpper(Sums(), sums[other], sums[row]);
            uint8_t result[8];
            hn::StoreU(hn::DemoteTo(hn::Rebind<uint8_t, Sums>(), Join(high, low)), hn::Rebind<uint8_t, Sums>(), result);
            std::memcpy(out.row(y + row) + 4 * x, result, 4);
            std::memcpy(out.row(y + other) + 4 * x, result + (other == row ? 0 : 4), 4);
        }
    }
}

void ResampleColumns(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    if (in.bytes_per_pixel != 4) return plain::resample_columns(in, axis, out);
    int y = 0;
    for (; y + 4 <= out.height; y += 4) ColumnsOfRows<4>(in, axis, out, y);
    for (; y < out.height; ++y) ColumnsOfRows<1>(in, axis, out, y);
}

// Where the two rows of a pair lie. A missing second row has weight 0: any readable one does.
HWY_INLINE const uint8_t* SecondRow(const ImageView& in, const ResampleAxis& axis, int place, int pair) {
    const int row = axis.first(place) + 2 * pair + 1;
    return in.row(2 * pair + 1 < axis.count(place) ? row : axis.first(place));
}

// 32 bytes of one output row.
HWY_INLINE void RowsBlock(const ImageView& in, const ResampleAxis& axis, int place, ptrdiff_t x, uint8_t* to) {
    const auto zero = hn::Zero(Bytes());
    const auto half = hn::Set(Sums(), kHalf);
    hn::Vec<Sums> high[4], low[4];
    for (int part = 0; part < 4; ++part) {
        high[part] = hn::Zero(Sums());
        low[part] = half;
    }
    const int16_t* weights = axis.split(place);
    const uint8_t* first = in.row(axis.first(place)) + x;
    const int pairs = (axis.count(place) + 1) / 2;
    for (int pair = 0; pair < pairs; ++pair, weights += ResampleAxis::kNumbersPerPair, first += 2 * in.stride_bytes) {
        const auto a = hn::LoadU(Bytes(), first);
        const auto b = hn::LoadU(Bytes(), SecondRow(in, axis, place, pair) + x);
        int32_t high_pair, low_pair;
        std::memcpy(&high_pair, weights, sizeof high_pair);
        std::memcpy(&low_pair, weights + 8, sizeof low_pair);
        const auto weight_high = hn::BitCast(Words(), hn::Set(Sums(), high_pair));
        const auto weight_low = hn::BitCast(Words(), hn::Set(Sums(), low_pair));
        const auto lower = hn::InterleaveLower(Bytes(), a, b);
        const auto upper = hn::InterleaveUpper(Bytes(), a, b);
        const hn::Vec<Words> numbers[4] = {hn::BitCast(Words(), hn::InterleaveLower(Bytes(), lower, zero)),
                                           hn::BitCast(Words(), hn::InterleaveUpper(Bytes(), lower, zero)),
                                           hn::BitCast(Words(), hn::InterleaveLower(Bytes(), upper, zero)),
                                           hn::BitCast(Words(), hn::InterleaveUpper(Bytes(), upper, zero))};
        for (int part = 0; part < 4; ++part) {
            high[part] = AddProducts(numbers[part], weight_high, high[part]);
            low[part] = AddProducts(numbers[part], weight_low, low[part]);
        }
    }
    const hn::Half<Bytes> half_bytes;
    const hn::Half<Quads> half_quads;
    const auto narrow = [&](int part) {
        const auto words = hn::ReorderDemote2To(Words(), Join(high[part], low[part]), Join(high[part + 1], low[part + 1]));
        return hn::BitCast(half_quads, hn::DemoteTo(half_bytes, words));
    };
    const auto even = narrow(0), odd = narrow(2);  // eight bytes of the lower lane, eight of the upper one
    hn::StoreU(hn::BitCast(half_bytes, hn::InterleaveLower(half_quads, even, odd)), half_bytes, to + x);
    hn::StoreU(hn::BitCast(half_bytes, hn::InterleaveUpper(half_quads, even, odd)), half_bytes, to + x + 16);
}

void ResampleRows(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    const ptrdiff_t row_bytes = static_cast<ptrdiff_t>(out.width) * out.bytes_per_pixel;
    if (row_bytes < 32) return plain::resample_rows(in, axis, out);
    for (int y = 0; y < out.height; ++y) {
        ptrdiff_t x = 0;
        for (; x + 32 <= row_bytes; x += 32) RowsBlock(in, axis, y, x, out.row(y));
        if (x < row_bytes) RowsBlock(in, axis, y, row_bytes - 32, out.row(y));  // some bytes twice
    }
}

struct ChannelFactors {
    hn::Vec<Floats> shift, mean, stddev;
};

// Eight pixels of one channel.
template <bool kMirrored>
HWY_INLINE void NormaliseEight(hn::Vec<Sums> pixels, const ChannelFactors& factors, float* out) {
    const auto scaled = hn::Div(hn::ConvertTo(Floats(), pixels), hn::Set(Floats(), 255.0F));
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

void ResampleColumns(const ImageView& in, const ResampleAxis& axis, const ImageView& out) { plain::resample_columns(in, axis, out); }
void ResampleRows(const ImageView& in, const ResampleAxis& axis, const ImageView& out) { plain::resample_rows(in, axis, out); }
void Normalise(const ImageView& image, const Normalisation& how, bool mirrored, float* out) {
    plain::normalise(image, how, mirrored, out);
}

#endif  // HWY_TARGET

}  // namespace lockstep::pixel_kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
