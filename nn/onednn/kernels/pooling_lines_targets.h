// The vector loops of pooling_lines.cc. Included once for each instruction set by Highway's foreach_target.h, so without a guard.
#include <cstddef>
#include <cstdint>
#include <limits>

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

// The largest of a window and its place, element after element; a NaN wins over all numbers. When `kNumbers`, a NaN is only seen:
// then the result means nothing and the function returns false. That form is the quick one, because its maximum waits for no
// comparison.
template <class Element, size_t kBlock, bool kNote, bool kNumbers, class D, class I>
HWY_INLINE bool TakeLargest(const Line& line, int64_t w, size_t lane, D tag, hn::Vec<D>& best, I& winner) {
    const hn::RebindToSigned<D> int_tag;
    const auto* source = static_cast<const typename Element::Stored*>(line.source);
    const Span columns = line.columns[w];
    const auto first =
        static_cast<int32_t>(line.place + line.rows.begin * line.place_per_row + columns.begin + w * line.place_per_pixel);
    const auto one = hn::Set(int_tag, 1), next_row = hn::Set(int_tag, static_cast<int32_t>(line.place_per_row));
    auto row_place = hn::Set(int_tag, first);
    auto not_numbers = hn::IsNaN(hn::Zero(tag));  // none yet
    best = hn::Set(tag, -std::numeric_limits<float>::infinity());
    winner = row_place;
    for (int64_t row = line.rows.begin; row < line.rows.end; ++row) {
        const auto* pixel = source + PlaceOf<kBlock>(line, row, columns.begin, lane);
        auto place = row_place;
        for (int64_t column = columns.begin; column < columns.end; ++column, pixel += kBlock) {
            const auto value = Element::Load(tag, pixel);
            auto takes = hn::Gt(value, best);
            if constexpr (kNumbers) {
                not_numbers = hn::Or(not_numbers, hn::IsNaN(value));
                best = hn::Max(best, value);
            } else {
                takes = hn::Or(takes, hn::IsNaN(value));
                best = hn::IfThenElse(takes, value, best);
            }
            if constexpr (kNote) {
                winner = hn::IfThenElse(hn::RebindMask(int_tag, takes), place, winner);
                place = hn::Add(place, one);
            }
        }
        row_place = hn::Add(row_place, next_row);
    }
    return hn::AllFalse(tag, not_numbers);
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
            const bool numbers = TakeLargest<Element, kBlock, kNote, true>(line, w, lane, tag, best, winner);
            if (HWY_UNLIKELY(!numbers)) TakeLargest<Element, kBlock, kNote, false>(line, w, lane, tag, best, winner);
            const size_t at = static_cast<size_t>(w) * kBlock + lane;
            Element::Store(tag, best, result + at, line.past_caches);
            if constexpr (kNote) hn::StoreU(hn::DemoteTo(byte_tag, winner), byte_tag, line.winners + at);
        });
}

template <class Element, size_t kBlock>
HWY_NOINLINE void MaxBackwardOf(const Line& line_given) {
    const Line line = line_given;
    const auto* source = static_cast<const typename Element::Stored*>(line.source);
    auto* result = static_cast<typename Element::Stored*>(line.result);
    const size_t row_step = static_cast<size_t>(line.source_width) * kBlock;
    const int64_t first_place = line.place + line.rows.begin * line.place_per_row;
    ForEachVector<kBlock>(
        line, [&](auto tag, int64_t w, size_t lane) HWY_ATTR __attribute__((always_inline)) {
            const hn::RebindToSigned<decltype(tag)> int_tag;
            const hn::Rebind<uint8_t, decltype(tag)> byte_tag;
            const auto next_row = hn::Set(int_tag, static_cast<int32_t>(line.place_per_row));
            const auto next_column = hn::Set(int_tag, static_cast<int32_t>(line.place_per_column));
            const Span columns = line.columns[w];
            auto row_place = hn::Set(
                int_tag, static_cast<int32_t>(first_place + columns.begin * line.place_per_column + w * line.place_per_pixel));
            auto sum = hn::Zero(tag);
            const auto add = [&](size_t at, auto place) HWY_ATTR __attribute__((always_inline)) {
                const auto winner = hn::PromoteTo(int_tag, hn::LoadU(byte_tag, line.source_winners + at));
                const auto took = hn::RebindMask(tag, hn::Eq(winner, place));
                sum = hn::Add(sum, hn::IfThenElseZero(took, Element::Load(tag, source + at)));
            };
            const int64_t count = columns.end - columns.begin;
            size_t row_at = PlaceOf<kBlock>(line, line.rows.begin, columns.begin, lane);
            for (int64_t row = line.rows.begin; row < line.rows.end; ++row) {
                size_t at = row_at;
                auto place = row_place;
                if (HWY_LIKELY(count > 0)) add(at, place);
                for (int64_t more = 1; more < count; ++more) {
                    at += kBlock;
                    place = hn::Add(place, next_column);
                    add(at, place);
                }
                row_at += row_step;
                row_place = hn::Add(row_place, next_row);
            }
            Element::Store(tag, sum, result + static_cast<size_t>(w) * kBlock + lane, line.past_caches);
        });
}

template <class Element, size_t kBlock>
HWY_NOINLINE void AverageForwardOf(const Line& line_given) {
    const Line line = line_given;
    const auto* source = static_cast<const typename Element::Stored*>(line.source);
    auto* result = static_cast<typename Element::Stored*>(line.result);
    ForEachVector<kBlock>(
        line, [&](auto tag, int64_t w, size_t lane) HWY_ATTR __attribute__((always_inline)) {
            const Span columns = line.columns[w];
            auto sum = hn::Zero(tag);
            for (int64_t row = line.rows.begin; row < line.rows.end; ++row) {
                const auto* pixel = source + PlaceOf<kBlock>(line, row, columns.begin, lane);
                for (int64_t column = columns.begin; column < columns.end; ++column, pixel += kBlock) {
                    sum = hn::Add(sum, Element::Load(tag, pixel));
                }
            }
            const auto quotient = hn::Set(tag, *line.row_quotients * line.column_quotients[w]);
            Element::Store(tag, hn::Mul(sum, quotient), result + static_cast<size_t>(w) * kBlock + lane, line.past_caches);
        });
}

template <class Element, size_t kBlock>
HWY_NOINLINE void AverageBackwardOf(const Line& line_given) {
    const Line line = line_given;
    const auto* source = static_cast<const typename Element::Stored*>(line.source);
    auto* result = static_cast<typename Element::Stored*>(line.result);
    ForEachVector<kBlock>(
        line, [&](auto tag, int64_t w, size_t lane) HWY_ATTR __attribute__((always_inline)) {
            const Span columns = line.columns[w];
            auto sum = hn::Zero(tag);
            for (int64_t row = line.rows.begin; row < line.rows.end; ++row) {
                const auto* pixel = source + PlaceOf<kBlock>(line, row, columns.begin, lane);
                for (int64_t column = columns.begin; column < columns.end; ++column, pixel += kBlock) {
                    const auto quotient = hn::Set(tag, line.row_quotients[row] * line.column_quotients[column]);
                    sum = hn::MulAdd(Element::Load(tag, pixel), quotient, sum);
                }
            }
            Element::Store(tag, sum, result + static_cast<size_t>(w) * kBlock + lane, line.past_caches);
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
        WithTypes(line, [&]<class Element, size_t kBlock>() { MaxBackwardOf<Element, kBlock>(line); });
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
        WithTypes(line, [&]<class Element, size_t kBlock>() { AverageBackwardOf<Element, kBlock>(line); });
    }
}

}  // namespace lockstep::onednn::pool_lines::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
