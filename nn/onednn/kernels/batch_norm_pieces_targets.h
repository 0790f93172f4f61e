// The vector loops of batch_norm_pieces.cc. Included once for each instruction set by Highway's foreach_target.h, so without a
// guard.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "nn/onednn/kernels/batch_norm_pieces.h"
#include "nn/onednn/kernels/elements_targets.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::onednn::norm_pieces::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using onednn::HWY_NAMESPACE::Bf16;
using onednn::HWY_NAMESPACE::F32;
using onednn::HWY_NAMESPACE::kMinusLog2E;
using onednn::HWY_NAMESPACE::kPlain;
using onednn::HWY_NAMESPACE::SigmoidOfPowers;
using onednn::HWY_NAMESPACE::Tag;

template <class D>
HWY_INLINE hn::Mask<D> LoadBits(D tag, const uint8_t* bits) {
    uint8_t bytes[8] = {};
    for (size_t byte = 0; byte < hn::MaxLanes(tag) / 8; ++byte) bytes[byte] = bits[byte];
    return hn::LoadMaskBits(tag, bytes);
}

// A bit for each value above zero, of the same channels of kCount pixels.
template <size_t kBlock, size_t kCount, class D>
HWY_INLINE void StoreSigns(D tag, const hn::Vec<D> (&values)[kCount], uint8_t* bits) {
    constexpr size_t kLanes = hn::MaxLanes(D());
    using OfPixel = std::conditional_t<kLanes == 16, uint16_t, uint8_t>;
    OfPixel signs[kCount];
    for (size_t i = 0; i < kCount; ++i) {
        hn::StoreMaskBits(tag, hn::Gt(values[i], hn::Zero(tag)), reinterpret_cast<uint8_t*>(&signs[i]));
    }
    if constexpr (kLanes == kBlock && kCount == 4) {  // they lie side by side: one store takes a fifth off the time of four
        using Together = std::conditional_t<kLanes == 16, uint64_t, uint32_t>;
        Together together = 0;
        for (size_t i = 0; i < kCount; ++i) together |= static_cast<Together>(signs[i]) << (i * kLanes);
        std::memcpy(bits, &together, sizeof together);
    } else {
        for (size_t i = 0; i < kCount; ++i) std::memcpy(bits + i * kBlock / 8, &signs[i], sizeof signs[i]);
    }
}

// What stands around the batch norm, as a type of its own.
enum class Form : uint8_t { kAlone, kOther, kMask, kOtherAndMask, kSigmoid };
constexpr bool HasOther(Form form) { return form == Form::kOther || form == Form::kOtherAndMask; }
constexpr bool HasMask(Form form) { return form == Form::kMask || form == Form::kOtherAndMask; }

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
    const auto* next = source + (piece.planes == 1 ? piece.pixels * piece.block : piece.planes * piece.plane_stride);
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
                if (way % 2 == 0) hwy::Prefetch(next + element + lane);
                const V distance = hn::Sub(Element::Load(tag, source + element + lane), mean);
                sum = hn::MulAdd(distance, distance, sum);
            });
        hn::StoreU(mean, tag, piece.sums + lane);
        hn::StoreU(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), tag, piece.sums + kBlock + lane);
    });
}

// Normalises kPixels pixels from element `at` on, of one vector of channels. A sigmoid's gain and shift lead to powers of 2.
template <class Element, size_t kBlock, Form kForm, size_t kPixels, class D, class V = hn::Vec<D>>
HWY_INLINE void NormalisePixels(D tag, const Piece& piece, size_t at, V mean, V gain, V shift) {
    using Stored = typename Element::Stored;
    const auto* source = static_cast<const Stored*>(piece.source) + at;
    const auto* addend = static_cast<const Stored*>(piece.other) + at;
    auto* result = static_cast<Stored*>(piece.result) + at;
    V values[kPixels];
    for (size_t i = 0; i < kPixels; ++i) {
        values[i] = hn::MulAdd(hn::Sub(Element::Load(tag, source + i * kBlock), mean), gain, shift);
        if constexpr (HasOther(kForm)) values[i] = hn::Add(values[i], Element::Load(tag, addend + i * kBlock));
    }
    if constexpr (HasMask(kForm)) {
        StoreSigns<kBlock>(tag, values, piece.mask + at / 8);
        for (V& value : values) value = hn::IfThenZeroElse(hn::Lt(value, hn::Zero(tag)), value);  // a NaN must not be hidden
    }
    if constexpr (kForm == Form::kSigmoid) {
        hwy::Prefetch(source + 1024);  // 3 % in tensors that no cache holds
        SigmoidOfPowers<kPixels>(tag, values);
    }
    for (size_t i = 0; i < kPixels; ++i) Element::Store(tag, values[i], result + i * kBlock, piece.past_caches);
}

template <class Element, size_t kBlock, Form kForm>
HWY_NOINLINE void NormaliseOf(const Piece& piece_given) {
    constexpr size_t kPixels = kForm == Form::kSigmoid ? 2 : 4;  // at a time
    const Piece piece = piece_given;                             // a copy that no store can change
    ForEachVector<Element, kBlock>([&](auto tag, size_t lane) HWY_ATTR __attribute__((always_inline)) {
        const auto factor = hn::Set(tag, kForm == Form::kSigmoid ? kMinusLog2E : 1.0F);
        const auto mean = hn::LoadU(tag, piece.mean + lane);
        const auto gain = hn::Mul(factor, hn::LoadU(tag, piece.gain + lane));
        const auto shift = hn::Mul(factor, hn::LoadU(tag, piece.shift + lane));
        for (int64_t plane = 0; plane < piece.planes; ++plane) {
            size_t at = static_cast<size_t>(plane * piece.plane_stride) + lane;
            auto left = static_cast<size_t>(piece.pixels);
            for (; left >= kPixels; left -= kPixels, at += kPixels * kBlock) {
                NormalisePixels<Element, kBlock, kForm, kPixels>(tag, piece, at, mean, gain, shift);
            }
            for (; left > 0; --left, at += kBlock) {
                NormalisePixels<Element, kBlock, kForm, 1>(tag, piece, at, mean, gain, shift);
            }
        }
    });
}

// The gradient that the ReLU lets pass, or that comes through the sigmoid.
template <class Element, Form kForm, class D>
HWY_INLINE hn::Vec<D> Passed(D tag, const Piece& piece, int64_t at) {
    using Stored = typename Element::Stored;
    auto gradient = Element::Load(tag, static_cast<const Stored*>(piece.gradient) + at);
    if constexpr (HasOther(kForm)) gradient = hn::Add(gradient, Element::Load(tag, static_cast<const Stored*>(piece.other) + at));
    if constexpr (HasMask(kForm)) gradient = hn::IfThenElseZero(LoadBits(tag, piece.mask + at / 8), gradient);
    if constexpr (kForm == Form::kSigmoid) {
        const auto y = Element::Load(tag, static_cast<const Stored*>(piece.activated) + at);
        gradient = hn::Mul(gradient, hn::NegMulAdd(y, y, y));  // y (1 - y)
    }
    return gradient;
}

template <class Element, size_t kBlock, Form kForm>
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
                const V gradient = Passed<Element, kForm>(tag, local, at);
                const V distance = hn::Sub(Element::Load(tag, source + at), mean);
                if (passed != nullptr) Element::Store(tag, gradient, passed + at, false);  // read again soon
                sum = hn::Add(sum, gradient);
                product = hn::MulAdd(gradient, distance, product);
            });
        hn::StoreU(hn::Add(hn::Add(g0, g1), hn::Add(g2, g3)), tag, local.sums + lane);
        hn::StoreU(hn::Add(hn::Add(p0, p1), hn::Add(p2, p3)), tag, local.sums + kBlock + lane);
    });
}

template <class Element, size_t kBlock, Form kForm>
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
                const auto gradient = Passed<Element, kForm>(tag, local, at);
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

// With the form as a type, too.
template <class Work>
HWY_INLINE void WithForms(const Piece& piece, Form form, const Work& work) {
    WithTypes(piece, [&]<class Element, size_t kBlock>() {
        switch (form) {
            case Form::kAlone:
                return work.template operator()<Element, kBlock, Form::kAlone>();
            case Form::kOther:
                return work.template operator()<Element, kBlock, Form::kOther>();
            case Form::kMask:
                return work.template operator()<Element, kBlock, Form::kMask>();
            case Form::kOtherAndMask:
                return work.template operator()<Element, kBlock, Form::kOtherAndMask>();
            case Form::kSigmoid:
                return work.template operator()<Element, kBlock, Form::kSigmoid>();
        }
    });
}

Form FormOf(const Piece& piece) {
    if (piece.sigmoid || piece.activated != nullptr) return Form::kSigmoid;
    if (piece.other != nullptr) return piece.mask != nullptr ? Form::kOtherAndMask : Form::kOther;
    return piece.mask != nullptr ? Form::kMask : Form::kAlone;
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
        WithForms(piece, FormOf(piece),
                  [&]<class Element, size_t kBlock, Form kForm>() { NormaliseOf<Element, kBlock, kForm>(piece); });
    }
}

void Reduce(const Piece& piece) {
    if constexpr (kPlain) {
        plain::reduce(piece);
    } else {
        WithForms(piece, FormOf(piece),
                  [&]<class Element, size_t kBlock, Form kForm>() { ReduceOf<Element, kBlock, kForm>(piece); });
    }
}

void Differentiate(const Piece& piece) {
    if constexpr (kPlain) {
        plain::differentiate(piece);
    } else {
        Piece from = piece;
        if (piece.passed != nullptr) from.gradient = piece.passed;  // the sum is made and masked already
        WithForms(piece, piece.passed != nullptr ? Form::kAlone : FormOf(piece),
                  [&]<class Element, size_t kBlock, Form kForm>() { DifferentiateOf<Element, kBlock, kForm>(from); });
    }
}

}  // namespace lockstep::onednn::norm_pieces::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
