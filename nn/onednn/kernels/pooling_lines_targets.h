// The vector loops of pooling_lines.cc. Included once for each instruction set by Highway's foreach_target.h, so without a guard.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "nn/onednn/kernels/elements_targets.h"
#include "nn/onednn/kernels/pooling_lines.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::onednn::pool_lines::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using onednn::HWY_NAMESPACE::Bf16;
using onednn::HWY_NAMESPACE::F32;
using onednn::HWY_NAMESPACE::kPlain;
using onednn::HWY_NAMESPACE::Tag;

// Calls work(tag, w, lane) for each vector of the line.
template <size_t kBlock, class Work>
HWY_INLINE void ForEachVector(const Line& line, const Work& work) {
    const Tag<kBlock> tag;
    for (int64_t w = 0; w < line.width; ++w) {
        for (size_t lane = 0; lane < kBlock; lane += hn::MaxLanes(tag)) work(tag, w, lane);
    }
}

// Where a source pixel's vector lies in its plane, in elements.
template <size_t kBlock>
HWY_INLINE size_t PlaceOf(const Line& line, int64_t row, int64_t column, size_t lane) {
    return static_cast<size_t>(row * line.source_width + column) * kBlock + lane;
}

HWY_INLINE int32_t PlaceInWindow(const Line& line, int64_t w, int64_t row, int64_t column) {
    return static_cast<int32_t>(line.place + row * line.place_per_row + column * line.place_per_column + w * line.place_per_pixel);
}

// Whether the window of pixel `w` is a whole square of `side` pixels, whose places count from 0 in row-major order.
HWY_INLINE bool IsWhole(const Line& line, int64_t w, int64_t side) {
    const Span columns = line.columns[w];
    return columns.end - columns.begin == side && line.rows.end - line.rows.begin == side && line.place_per_row == side &&
           PlaceInWindow(line, w, line.rows.begin, columns.begin) == 0;
}

// Fetches what the same window of the next line will read first, if windows move on by kSide - 1: rows are too short for the
// processor to find out by itself. May point past the tensor's end, where nothing happens.
template <int64_t kSide, size_t kBlock, class Stored>
HWY_INLINE void PrefetchRowsBelow(const Stored* pixel, size_t row_step) {
    constexpr size_t kPixelsPerLine = std::max<size_t>(1, 64 / (kBlock * sizeof(Stored)));
    for (size_t row = kSide; row < 2 * kSide - 1; ++row) {
        for (size_t column = 0; column < kSide - 1; column += kPixelsPerLine) {
            hwy::Prefetch(pixel + row * row_step + column * kBlock);
        }
    }
}

// The largest of a whole window of kSide x kSide pixels and its place, without a loop. A NaN is only seen: then the result means
// nothing and the function returns false. (What is seen is a sum that is none: also infinities of both signs.) This is the quick
// form, because its maximum waits for no comparison.
template <class Element, size_t kBlock, bool kNote, int64_t kSide, class D, class I>
HWY_INLINE bool TakeLargestOfWhole(const Line& line, int64_t w, size_t lane, D tag, hn::Vec<D>& best, I& winner) {
    const hn::RebindToSigned<D> int_tag;
    const auto* source = static_cast<const typename Element::Stored*>(line.source);
    const auto* pixel = source + PlaceOf<kBlock>(line, line.rows.begin, line.columns[w].begin, lane);
    const size_t row_step = static_cast<size_t>(line.source_width) * kBlock;
    PrefetchRowsBelow<kSide, kBlock>(pixel, row_step);
    best = Element::Load(tag, pixel);
    winner = hn::Zero(int_tag);
    auto sum = best;
    for (int32_t place = 1; place < kSide * kSide; ++place) {
        const auto value = Element::Load(tag, pixel + place / kSide * row_step + place % kSide * kBlock);
        sum = hn::Add(sum, value);
        if constexpr (kNote) winner = hn::IfThenElse(hn::RebindMask(int_tag, hn::Gt(value, best)), hn::Set(int_tag, place), winner);
        best = hn::Max(best, value);
    }
    return hn::AllFalse(tag, hn::IsNaN(sum));
}

// The largest of any window and its place, element after element; a NaN wins over all numbers.
template <class Element, size_t kBlock, bool kNote, class D, class I>
HWY_INLINE void TakeLargest(const Line& line, int64_t w, size_t lane, D tag, hn::Vec<D>& best, I& winner) {
    const hn::RebindToSigned<D> int_tag;
    const auto* source = static_cast<const typename Element::Stored*>(line.source);
    const Span columns = line.columns[w];
    const auto one = hn::Set(int_tag, 1), next_row = hn::Set(int_tag, static_cast<int32_t>(line.place_per_row));
    auto row_place = hn::Set(int_tag, PlaceInWindow(line, w, line.rows.begin, columns.begin));
    best = hn::Set(tag, -std::numeric_limits<float>::infinity());
    winner = row_place;
    for (int64_t row = line.rows.begin; row < line.rows.end; ++row) {
        const auto* pixel = source + PlaceOf<kBlock>(line, row, columns.begin, lane);
        auto place = row_place;
        for (int64_t column = columns.begin; column < columns.end; ++column, pixel += kBlock) {
            const auto value = Element::Load(tag, pixel);
            const auto takes = hn::Or(hn::Gt(value, best), hn::IsNaN(value));
            best = hn::IfThenElse(takes, value, best);
            if constexpr (kNote) {
                winner = hn::IfThenElse(hn::RebindMask(int_tag, takes), place, winner);
                place = hn::Add(place, one);
            }
        }
        row_place = hn::Add(row_place, next_row);
    }
}

template <class Element, size_t kBlock, bool kNote>
HWY_NOINLINE void MaxForwardOf(const Line& line_given) {
    const Line line = line_given;  // a copy that no store can change
    auto* result = static_cast<typename Element::Stored*>(line.result);
    ForEachVector<kBlock>(
        line, [&](auto tag, int64_t w, size_t lane) HWY_ATTR __attribute__((always_inline)) {
            const hn::Rebind<uint8_t, decltype(tag)> byte_tag;
            auto best = hn::Zero(tag);
            auto winner = hn::Zero(hn::RebindToSigned<decltype(tag)>());
            const bool is_done =
                IsWhole(line, w, 3)   ? TakeLargestOfWhole<Element, kBlock, kNote, 3>(line, w, lane, tag, best, winner)
                : IsWhole(line, w, 2) ? TakeLargestOfWhole<Element, kBlock, kNote, 2>(line, w, lane, tag, best, winner)
                                      : false;
            if (HWY_UNLIKELY(!is_done)) TakeLargest<Element, kBlock, kNote>(line, w, lane, tag, best, winner);
            const size_t at = static_cast<size_t>(w) * kBlock + lane;
            Element::Store(tag, best, result + at, line.past_caches);
            if constexpr (kNote) hn::StoreU(hn::DemoteTo(byte_tag, winner), byte_tag, line.winners + at);
        });
}

// What a window's gradient gives to a pixel at a place in it: the whole if it took that pixel as its maximum, else nothing;
template <class Element, class D>
class IfTaken {
public:
    HWY_INLINE IfTaken(const Line& line, int64_t /*row*/, int64_t /*column*/, size_t at, D tag)
        : gradient_(Element::Load(tag, static_cast<const typename Element::Stored*>(line.source) + at)),
          winner_(hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(hn::Rebind<uint8_t, D>(), line.source_winners + at))) {}
    HWY_INLINE hn::Vec<D> At(hn::Vec<hn::RebindToSigned<D>> place) const {
        return hn::IfThenElseZero(hn::RebindMask(D(), hn::Eq(winner_, place)), gradient_);
    }

private:
    hn::Vec<D> gradient_;
    hn::Vec<hn::RebindToSigned<D>> winner_;
};

// or, in an average, an equal share.
template <class Element, class D>
class Share {
public:
    HWY_INLINE Share(const Line& line, int64_t row, int64_t column, size_t at, D tag)
        : share_(hn::Mul(Element::Load(tag, static_cast<const typename Element::Stored*>(line.source) + at),
                         hn::Set(tag, line.row_quotients[row] * line.column_quotients[column]))) {}
    HWY_INLINE hn::Vec<D> At(hn::Vec<hn::RebindToSigned<D>> /*place*/) const { return share_; }

private:
    hn::Vec<D> share_;
};

// What pixel `w` gets from all windows that it lies in, summed in their order.
template <template <class, class> class Part, class Element, size_t kBlock, class D>
HWY_INLINE hn::Vec<D> SumOfParts(const Line& line, int64_t w, size_t lane, D tag) {
    const hn::RebindToSigned<D> int_tag;
    const auto next_row = hn::Set(int_tag, static_cast<int32_t>(line.place_per_row));
    const auto next_column = hn::Set(int_tag, static_cast<int32_t>(line.place_per_column));
    const Span columns = line.columns[w];
    auto row_place = hn::Set(int_tag, PlaceInWindow(line, w, line.rows.begin, columns.begin));
    auto sum = hn::Zero(tag);
    for (int64_t row = line.rows.begin; row < line.rows.end; ++row) {
        size_t at = PlaceOf<kBlock>(line, row, columns.begin, lane);
        auto place = row_place;
        for (int64_t column = columns.begin; column < columns.end; ++column, at += kBlock) {
            sum = hn::Add(sum, Part<Element, D>(line, row, column, at, tag).At(place));
            place = hn::Add(place, next_column);
        }
        row_place = hn::Add(row_place, next_row);
    }
    return sum;
}

// Pixels w and w + 1 of a line for which two neighbouring windows of a row stand over the first pixel and the later of them over
// the second, as windows of three pixels do that move by two.
HWY_INLINE bool IsPair(const Line& line, int64_t w) {
    if (w + 1 >= line.width) return false;
    const Span first = line.columns[w], second = line.columns[w + 1];
    return first.end - first.begin == 2 && second.begin == first.begin + 1 && second.end == first.end;
}

// The places of such a pair in its windows of one row. They are the same for the next pair, two pixels and one window further.
template <class D>
struct PairPlaces {
    hn::Vec<D> first_in_earlier, first_in_later, second_in_later;

    HWY_INLINE PairPlaces(const Line& line, int64_t w, int64_t row)
        : first_in_earlier(hn::Set(D(), PlaceInWindow(line, w, row, line.columns[w].begin))),
          first_in_later(hn::Set(D(), PlaceInWindow(line, w, row, line.columns[w].begin + 1))),
          second_in_later(hn::Set(D(), PlaceInWindow(line, w + 1, row, line.columns[w].begin + 1))) {}
};

// Pairs from `w` on under kRows rows of windows; returns the first pixel that is in none.
template <template <class, class> class Part, class Element, size_t kBlock, int64_t kRows, class D>
HWY_INLINE int64_t BackwardOfPairs(const Line& line, int64_t w, size_t lane, D tag) {
    using Int = hn::RebindToSigned<D>;
    using P = Part<Element, D>;
    auto* result = static_cast<typename Element::Stored*>(line.result);
    const int64_t row = line.rows.begin;
    const PairPlaces<Int> upper(line, w, row), lower(line, w, row + kRows - 1);
    const size_t row_step = static_cast<size_t>(line.source_width) * kBlock;
    int64_t window = line.columns[w].begin;
    size_t at = PlaceOf<kBlock>(line, row, window, lane);
    for (; IsPair(line, w) && line.columns[w].begin == window; ++window, w += 2, at += kBlock) {
        const P earlier(line, row, window, at, tag), later(line, row, window + 1, at + kBlock, tag);
        auto sum = hn::Add(earlier.At(upper.first_in_earlier), later.At(upper.first_in_later));
        auto next_sum = later.At(upper.second_in_later);
        if constexpr (kRows == 2) {
            const P earlier_below(line, row + 1, window, at + row_step, tag);
            const P later_below(line, row + 1, window + 1, at + row_step + kBlock, tag);
            sum = hn::Add(hn::Add(sum, earlier_below.At(lower.first_in_earlier)), later_below.At(lower.first_in_later));
            next_sum = hn::Add(next_sum, later_below.At(lower.second_in_later));
        }
        Element::Store(tag, sum, result + static_cast<size_t>(w) * kBlock + lane, line.past_caches);
        Element::Store(tag, next_sum, result + static_cast<size_t>(w + 1) * kBlock + lane, line.past_caches);
    }
    return w;
}

// Pixels from `w` on that lie in the same windows, each at a place that does not matter; returns the first that lies in others.
template <class Element, size_t kBlock, class D>
HWY_INLINE int64_t StoreWhileAlike(const Line& line, int64_t w, size_t lane, D tag, hn::Vec<D> sum) {
    auto* result = static_cast<typename Element::Stored*>(line.result);
    const Span columns = line.columns[w];
    for (; w < line.width && line.columns[w].begin == columns.begin && line.columns[w].end == columns.end; ++w) {
        Element::Store(tag, sum, result + static_cast<size_t>(w) * kBlock + lane, line.past_caches);
    }
    return w;
}

template <template <class, class> class Part, class Element, size_t kBlock>
HWY_NOINLINE void BackwardOf(const Line& line_given) {
    const Line line = line_given;
    const Tag<kBlock> tag;
    auto* result = static_cast<typename Element::Stored*>(line.result);
    constexpr bool kPlaceMatters = std::is_same_v<Part<Element, Tag<kBlock>>, IfTaken<Element, Tag<kBlock>>>;
    const int64_t rows = line.rows.end - line.rows.begin;
    for (size_t lane = 0; lane < kBlock; lane += hn::MaxLanes(tag)) {
        for (int64_t w = 0; w < line.width;) {
            if (rows == 1 && IsPair(line, w)) {
                w = BackwardOfPairs<Part, Element, kBlock, 1>(line, w, lane, tag);
            } else if (rows == 2 && IsPair(line, w)) {
                w = BackwardOfPairs<Part, Element, kBlock, 2>(line, w, lane, tag);
            } else if (const auto sum = SumOfParts<Part, Element, kBlock>(line, w, lane, tag); kPlaceMatters) {
                Element::Store(tag, sum, result + static_cast<size_t>(w) * kBlock + lane, line.past_caches);
                ++w;
            } else {
                w = StoreWhileAlike<Element, kBlock>(line, w, lane, tag, sum);
            }
        }
    }
}

// The sum of a whole window of kSide x kSide pixels.
template <class Element, size_t kBlock, int64_t kSide, class D>
HWY_INLINE hn::Vec<D> SumOfWhole(const Line& line, int64_t w, size_t lane, D tag) {
    const auto* source = static_cast<const typename Element::Stored*>(line.source);
    const auto* pixel = source + PlaceOf<kBlock>(line, line.rows.begin, line.columns[w].begin, lane);
    const size_t row_step = static_cast<size_t>(line.source_width) * kBlock;
    PrefetchRowsBelow<kSide, kBlock>(pixel, row_step);
    auto sum = Element::Load(tag, pixel);
    for (size_t place = 1; place < kSide * kSide; ++place) {
        sum = hn::Add(sum, Element::Load(tag, pixel + place / kSide * row_step + place % kSide * kBlock));
    }
    return sum;
}

template <class Element, size_t kBlock, class D>
HWY_INLINE hn::Vec<D> SumOf(const Line& line, int64_t w, size_t lane, D tag) {
    const auto* source = static_cast<const typename Element::Stored*>(line.source);
    const Span columns = line.columns[w];
    auto sum = hn::Zero(tag);
    for (int64_t row = line.rows.begin; row < line.rows.end; ++row) {
        const auto* pixel = source + PlaceOf<kBlock>(line, row, columns.begin, lane);
        for (int64_t column = columns.begin; column < columns.end; ++column, pixel += kBlock) {
            sum = hn::Add(sum, Element::Load(tag, pixel));
        }
    }
    return sum;
}

template <class Element, size_t kBlock>
HWY_NOINLINE void AverageForwardOf(const Line& line_given) {
    const Line line = line_given;
    auto* result = static_cast<typename Element::Stored*>(line.result);
    ForEachVector<kBlock>(
        line, [&](auto tag, int64_t w, size_t lane) HWY_ATTR __attribute__((always_inline)) {
            const auto sum = IsWhole(line, w, 3)   ? SumOfWhole<Element, kBlock, 3>(line, w, lane, tag)
                             : IsWhole(line, w, 2) ? SumOfWhole<Element, kBlock, 2>(line, w, lane, tag)
                                                   : SumOf<Element, kBlock>(line, w, lane, tag);
            const auto quotient = hn::Set(tag, *line.row_quotients * line.column_quotients[w]);
            Element::Store(tag, hn::Mul(sum, quotient), result + static_cast<size_t>(w) * kBlock + lane, line.past_caches);
        });
}

// Calls work with the element type and the block size as types.
template <class Work>
HWY_INLINE void WithTypes(const Line& line, const Work& work) {
    if (line.type == DataType::f32) {
        line.block == 8 ? work.template operator()<F32, 8>() : work.template operator()<F32, 16>();
    } else {
        line.block == 8 ? work.template operator()<Bf16, 8>() : work.template operator()<Bf16, 16>();
    }
}

void MaxForward(const Line& line) {
    if constexpr (kPlain) {
        plain::max_forward(line);
    } else {
        WithTypes(line, [&]<class Element, size_t kBlock>() {
            line.winners != nullptr ? MaxForwardOf<Element, kBlock, true>(line) : MaxForwardOf<Element, kBlock, false>(line);
        });
    }
}

void MaxBackward(const Line& line) {
    if constexpr (kPlain) {
        plain::max_backward(line);
    } else {
        WithTypes(line, [&]<class Element, size_t kBlock>() { BackwardOf<IfTaken, Element, kBlock>(line); });
    }
}

void AverageForward(const Line& line) {
    if constexpr (kPlain) {
        plain::average_forward(line);
    } else {
        WithTypes(line, [&]<class Element, size_t kBlock>() { AverageForwardOf<Element, kBlock>(line); });
    }
}

void AverageBackward(const Line& line) {
    if constexpr (kPlain) {
        plain::average_backward(line);
    } else {
        WithTypes(line, [&]<class Element, size_t kBlock>() { BackwardOf<Share, Element, kBlock>(line); });
    }
}

}  // namespace lockstep::onednn::pool_lines::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
