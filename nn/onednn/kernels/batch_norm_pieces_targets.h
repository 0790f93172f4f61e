// The vector loops of batch_norm_pieces.cc. Included once for each instruction set by Highway's foreach_target.h, so without a
// guard.
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "nn/onednn/kernels/batch_norm_pieces.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::onednn::norm_pieces::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// How elements become vectors of floats and back.
struct F32 {
    using Stored = float;
    template <class D>
    static HWY_INLINE hn::Vec<D> Load(D tag, const float* data) {
        return hn::LoadU(tag, data);
    }
    template <class D>
    static HWY_INLINE void Store(D tag, hn::Vec<D> value, float* data, bool past_caches) {
        if (past_caches) {
            hn::Stream(value, tag, data);
        } else {
            hn::StoreU(value, tag, data);
        }
    }
};

struct Bf16 {
    using Stored = uint16_t;
    template <class D>
    static HWY_INLINE hn::Vec<D> Load(D tag, const uint16_t* data) {
        const hn::Rebind<uint16_t, D> half_tag;
        const hn::Rebind<uint32_t, D> wide_tag;
        return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(wide_tag, hn::LoadU(half_tag, data))));
    }
    // Rounds to nearest, ties to even; NaN stays NaN.
    template <class D>
    static HWY_INLINE void Store(D, hn::Vec<D> value, uint16_t* data, bool /*past_caches*/) {
        const hn::Rebind<uint16_t, D> half_tag;
        const hn::Rebind<uint32_t, D> wide_tag;
        const hn::Rebind<int32_t, D> signed_tag;
        const auto bits = hn::BitCast(wide_tag, value);
        const auto upper = hn::ShiftRight<16>(bits);
        const auto is_odd = hn::And(upper, hn::Set(wide_tag, 1));
        const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(wide_tag, 0x7fff), is_odd)));
        const auto quiet = hn::Or(upper, hn::Set(wide_tag, 0x40));
        const auto result = hn::IfThenElse(hn::RebindMask(wide_tag, hn::IsNaN(value)), quiet, rounded);
        hn::StoreU(hn::DemoteTo(half_tag, hn::BitCast(signed_tag, result)), half_tag, data);
    }
};

// Vectors of at most kBlock lanes. Those of less than 8 are no whole bytes of a mask; they are left to the plain loops.
template <size_t kBlock>
using Tag = hn::CappedTag<float, kBlock>;
constexpr bool kPlain = HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR || hn::MaxLanes(hn::ScalableTag<float>()) < 8;

template <class D>
HWY_INLINE hn::Mask<D> LoadBits(D tag, const uint8_t* bits) {
    uint8_t bytes[8] = {};
    for (size_t byte = 0; byte < hn::MaxLanes(tag) / 8; ++byte) bytes[byte] = bits[byte];
    return hn::LoadMaskBits(tag, bytes);
}

template <class D>
HWY_INLINE void StoreBits(D tag, hn::Mask<D> mask, uint8_t* bits) {
    uint8_t bytes[8];
    hn::StoreMaskBits(tag, mask, bytes);
    for (size_t byte = 0; byte < hn::MaxLanes(tag) / 8; ++byte) bits[byte] = bytes[byte];
}

// Calls work(element, way) for each pixel of a piece; `way` says which of four independent sums is its own. (The loops' bodies are
// forced inline, or their sums would live in memory.)
template <class Work>
HWY_INLINE void ForEachPixel(const Piece& piece, const Work& work) {
    for (int64_t plane = 0; plane < piece.planes; ++plane) {
        int64_t element = plane * piece.plane_stride;
        int64_t pixel = 0;
        for (; pixel + 4 <= piece.pixels; pixel += 4, element += 4 * piece.block) {
            work(element, 0);
            work(element + piece.block, 1);
            work(element + 2 * piece.block, 2);
            work(element + 3 * piece.block, 3);
        }
        for (; pixel < piece.pixels; ++pixel, element += piece.block) work(element, 0);
    }
}

// One vector of channels at a time, over all pixels of the piece: blocks of 16 on 8 lanes go twice through the first-level cache.
template <class Element, size_t kBlock, class Work>
HWY_INLINE void ForEachVector(const Work& work) {
    const Tag<kBlock> tag;
    for (size_t lane = 0; lane < kBlock; lane += hn::MaxLanes(tag)) work(tag, lane);
}

template <class Element, size_t kBlock>
HWY_NOINLINE void StatisticsOf(const Piece& piece) {
    const auto* source = static_cast<const typename Element::Stored*>(piece.source);
    ForEachVector<Element, kBlock>([&](auto tag, size_t lane) HWY_ATTR __attribute__((always_inline)) {
        using V = hn::Vec<decltype(tag)>;
        V a0 = hn::Zero(tag), a1 = a0, a2 = a0, a3 = a0;
        ForEachPixel(
            piece, [&](int64_t element, int way) HWY_ATTR __attribute__((always_inline)) {
                V& sum = way == 0 ? a0 : way == 1 ? a1 : way == 2 ? a2 : a3;
                sum = hn::Add(sum, Element::Load(tag, source + element + lane));
            });
        const V mean = hn::Mul(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Set(tag, 1.0F / static_cast<float>(piece.values())));
        a0 = a1 = a2 = a3 = hn::Zero(tag);
        ForEachPixel(
            piece, [&](int64_t element, int way) HWY_ATTR __attribute__((always_inline)) {
                V& sum = way == 0 ? a0 : way == 1 ? a1 : way == 2 ? a2 : a3;
                const V distance = hn::Sub(Element::Load(tag, source + element + lane), mean);
                sum = hn::MulAdd(distance, distance, sum);
            });
        hn::StoreU(mean, tag, piece.sums + lane);
        hn::StoreU(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), tag, piece.sums + kBlock + lane);
    });
}

template <class Element, size_t kBlock, bool kOther, bool kMask>
HWY_NOINLINE void NormaliseOf(const Piece& piece) {
    using Stored = typename Element::Stored;
    const auto* source = static_cast<const Stored*>(piece.source);
    const auto* addend = static_cast<const Stored*>(piece.other);
    auto* result = static_cast<Stored*>(piece.result);
    uint8_t* const bits = piece.mask;
    const bool past_caches = piece.past_caches;
    ForEachVector<Element, kBlock>([&](auto tag, size_t lane) HWY_ATTR __attribute__((always_inline)) {
        const auto mean = hn::LoadU(tag, piece.mean + lane);
        const auto gain = hn::LoadU(tag, piece.gain + lane);
        const auto shift = hn::LoadU(tag, piece.shift + lane);
        const auto zero = hn::Zero(tag);
        ForEachPixel(
            piece, [&](int64_t element, int /*way*/) HWY_ATTR __attribute__((always_inline)) {
                const int64_t at = element + static_cast<int64_t>(lane);
                auto value = hn::MulAdd(hn::Sub(Element::Load(tag, source + at), mean), gain, shift);
                if constexpr (kOther) value = hn::Add(value, Element::Load(tag, addend + at));
                if constexpr (kMask) {
                    StoreBits(tag, hn::Gt(value, zero), bits + at / 8);
                    value = hn::IfThenZeroElse(hn::Lt(value, zero), value);  // a NaN must not be hidden
                }
                Element::Store(tag, value, result + at, past_caches);
            });
    });
}

// The gradient that the ReLU lets pass.
template <class Element, bool kOther, bool kMask, class D>
HWY_INLINE hn::Vec<D> Passed(D tag, const Piece& piece, int64_t at) {
    using Stored = typename Element::Stored;
    auto gradient = Element::Load(tag, static_cast<const Stored*>(piece.gradient) + at);
    if constexpr (kOther) gradient = hn::Add(gradient, Element::Load(tag, static_cast<const Stored*>(piece.other) + at));
    if constexpr (kMask) gradient = hn::IfThenElseZero(LoadBits(tag, piece.mask + at / 8), gradient);
    return gradient;
}

template <class Element, size_t kBlock, bool kOther, bool kMask>
HWY_NOINLINE void ReduceOf(const Piece& piece) {
    using Stored = typename Element::Stored;
    const Piece local = piece;  // a copy that no store can change
    const auto* source = static_cast<const Stored*>(local.source);
    auto* passed = static_cast<Stored*>(local.passed);
    ForEachVector<Element, kBlock>([&](auto tag, size_t lane) HWY_ATTR __attribute__((always_inline)) {
        using V = hn::Vec<decltype(tag)>;
        const V mean = hn::LoadU(tag, local.mean + lane);
        V g0 = hn::Zero(tag), g1 = g0, g2 = g0, g3 = g0;
        V p0 = g0, p1 = g0, p2 = g0, p3 = g0;
        ForEachPixel(
            local, [&](int64_t element, int way) HWY_ATTR __attribute__((always_inline)) {
                V& sum = way == 0 ? g0 : way == 1 ? g1 : way == 2 ? g2 : g3;
                V& product = way == 0 ? p0 : way == 1 ? p1 : way == 2 ? p2 : p3;
                const int64_t at = element + static_cast<int64_t>(lane);
                const V gradient = Passed<Element, kOther, kMask>(tag, local, at);
                const V distance = hn::Sub(Element::Load(tag, source + at), mean);
                if (passed != nullptr) Element::Store(tag, gradient, passed + at, false);  // read again soon
                sum = hn::Add(sum, gradient);
                product = hn::MulAdd(gradient, distance, product);
            });
        hn::StoreU(hn::Add(hn::Add(g0, g1), hn::Add(g2, g3)), tag, local.sums + lane);
        hn::StoreU(hn::Add(hn::Add(p0, p1), hn::Add(p2, p3)), tag, local.sums + kBlock + lane);
    });
}

template <class Element, size_t kBlock, bool kOther, bool kMask>
HWY_NOINLINE void DifferentiateOf(const Piece& piece) {
    using Stored = typename Element::Stored;
    const Piece local = piece;
    const auto* source = static_cast<const Stored*>(local.source);
    auto* result = static_cast<Stored*>(local.result);
    ForEachVector<Element, kBlock>([&](auto tag, size_t lane) HWY_ATTR __attribute__((always_inline)) {
        const auto mean = hn::LoadU(tag, local.mean + lane);
        const auto gain = hn::LoadU(tag, local.gain + lane);
        const auto slope = hn::LoadU(tag, local.slope + lane);
        const auto constant = hn::LoadU(tag, local.shift + lane);
        ForEachPixel(
            local, [&](int64_t element, int /*way*/) HWY_ATTR __attribute__((always_inline)) {
                const int64_t at = element + static_cast<int64_t>(lane);
                const auto gradient = Passed<Element, kOther, kMask>(tag, local, at);
                const auto distance = hn::Sub(Element::Load(tag, source + at), mean);
                Element::Store(tag, hn::MulAdd(gain, gradient, hn::MulAdd(slope, distance, constant)), result + at,
                               local.past_caches);
            });
    });
}

// Calls work with the element type and the block size as types.
template <class Work>
HWY_INLINE void WithTypes(const Piece& piece, const Work& work) {
    if (piece.type == DataType::f32) {
        piece.block == 8 ? work.template operator()<F32, 8>() : work.template operator()<F32, 16>();
    } else {
        piece.block == 8 ? work.template operator()<Bf16, 8>() : work.template operator()<Bf16, 16>();
    }
}

// With the questions "is there another input" and "is there a mask" as types, too.
template <class Work>
HWY_INLINE void WithForms(const Piece& piece, bool other, bool mask, const Work& work) {
    WithTypes(piece, [&]<class Element, size_t kBlock>() {
        if (other) {
            mask ? work.template operator()<Element, kBlock, true, true>()
                 : work.template operator()<Element, kBlock, true, false>();
        } else {
            mask ? work.template operator()<Element, kBlock, false, true>()
                 : work.template operator()<Element, kBlock, false, false>();
        }
    });
}

void Statistics(const Piece& piece) {
    if constexpr (kPlain) {
        plain::statistics(piece);
    } else {
        WithTypes(piece, [&]<class Element, size_t kBlock>() { StatisticsOf<Element, kBlock>(piece); });
    }
}

void Normalise(const Piece& piece) {
    if constexpr (kPlain) {
        plain::normalise(piece);
    } else {
        WithForms(
            piece, piece.other != nullptr, piece.mask != nullptr,
            [&]<class Element, size_t kBlock, bool kOther, bool kMask>() { NormaliseOf<Element, kBlock, kOther, kMask>(piece); });
    }
}

void Reduce(const Piece& piece) {
    if constexpr (kPlain) {
        plain::reduce(piece);
    } else {
        WithForms(
            piece, piece.other != nullptr, piece.mask != nullptr,
            [&]<class Element, size_t kBlock, bool kOther, bool kMask>() { ReduceOf<Element, kBlock, kOther, kMask>(piece); });
    }
}

void Differentiate(const Piece& piece) {
    if constexpr (kPlain) {
        plain::differentiate(piece);
    } else {
        Piece from = piece;
        if (piece.passed != nullptr) from.gradient = piece.passed;  // the sum is made and masked already
        const bool whole = piece.passed != nullptr;
        WithForms(piece, !whole && piece.other != nullptr, !whole && piece.mask != nullptr,
                  [&]<class Element, size_t kBlock, bool kOther, bool kMask>() {
                      DifferentiateOf<Element, kBlock, kOther, kMask>(from);
                  });
    }
}

}  // namespace lockstep::onednn::norm_pieces::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
