// The vector loops of reduce_kernels.cc. Included once for each instruction set by Highway's foreach_target.h, so without a guard.
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/kernels/reduce_kernels.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::reduce_kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// How elements become vectors of floats and back. D is a tag of floats: a whole vector, or one lane for the last elements.
struct F32 {
    using Stored = float;
    template <class D>
    static HWY_INLINE hn::Vec<D> Load(D tag, const float* data) {
        return hn::LoadU(tag, data);
    }
    template <class D>
    static HWY_INLINE void Store(D tag, hn::Vec<D> value, float* data) {
        hn::StoreU(value, tag, data);
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
    template <class D>
    static HWY_INLINE void Store(D, hn::Vec<D> value, uint16_t* data) {
        const hn::Rebind<uint16_t, D> half_tag;
        const hn::Rebind<uint32_t, D> wide_tag;
        const hn::Rebind<int32_t, D> signed_tag;
        const auto bits = hn::BitCast(wide_tag, value);
        const auto upper = hn::ShiftRight<16>(bits);
        const auto is_odd = hn::And(upper, hn::Set(wide_tag, 1));
        const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(wide_tag, 0x7fff), is_odd)));
        const auto quiet = hn::Or(upper, hn::Set(wide_tag, 0x40));
        const auto is_nan = hn::RebindMask(wide_tag, hn::IsNaN(value));
        const auto result = hn::IfThenElse(is_nan, quiet, rounded);
        hn::StoreU(hn::DemoteTo(half_tag, hn::BitCast(signed_tag, result)), half_tag, data);
    }
};

struct F16 {
    using Stored = uint16_t;
    template <class D>
    static HWY_INLINE hn::Vec<D> Load(D tag, const uint16_t* data) {
        const hn::Rebind<hwy::float16_t, D> half_tag;
        return hn::PromoteTo(tag, hn::LoadU(half_tag, reinterpret_cast<const hwy::float16_t*>(data)));
    }
    template <class D>
    static HWY_INLINE void Store(D, hn::Vec<D> value, uint16_t* data) {
        const hn::Rebind<hwy::float16_t, D> half_tag;
        hn::StoreU(hn::DemoteTo(half_tag, value), half_tag, reinterpret_cast<hwy::float16_t*>(data));
    }
};

// The tree over `kCount` inputs.
template <class Element, size_t kCount, class D>
HWY_INLINE hn::Vec<D> Tree(D tag, const typename Element::Stored* const* inputs, size_t index) {
    if constexpr (kCount == 1) {
        return Element::Load(tag, inputs[0] + index);
    } else {
        constexpr size_t kLeft = kCount > 4 ? 4 : kCount > 2 ? 2 : 1;
        return hn::Add(Tree<Element, kLeft>(tag, inputs, index), Tree<Element, kCount - kLeft>(tag, inputs + kLeft, index));
    }
}

template <class Element, class D>
HWY_INLINE hn::Vec<D> SmallTree(D tag, const typename Element::Stored* const* inputs, size_t input_count, size_t index) {
    switch (input_count) {
        case 1:
            return Tree<Element, 1>(tag, inputs, index);
        case 2:
            return Tree<Element, 2>(tag, inputs, index);
        case 3:
            return Tree<Element, 3>(tag, inputs, index);
        case 4:
            return Tree<Element, 4>(tag, inputs, index);
        case 5:
            return Tree<Element, 5>(tag, inputs, index);
        case 6:
            return Tree<Element, 6>(tag, inputs, index);
        case 7:
            return Tree<Element, 7>(tag, inputs, index);
        default:
            return Tree<Element, 8>(tag, inputs, index);
    }
}

// More than 8: whole subtrees of 8 are merged like the digits of a binary counter, which is the same tree; what is left over is
// its right flank.
template <class Element, class D>
HWY_INLINE hn::Vec<D> LargeTree(D tag, const typename Element::Stored* const* inputs, size_t input_count, size_t index) {
    constexpr size_t kLevels = 48;
    hn::Vec<D> subtrees[kLevels];
    size_t depth = 0;
    for (size_t group = 0; group < input_count / 8; ++group) {
        auto subtree = Tree<Element, 8>(tag, inputs + 8 * group, index);
        for (size_t digits = group; digits % 2 == 1; digits /= 2) subtree = hn::Add(subtrees[--depth], subtree);
        subtrees[depth++] = subtree;
    }
    const size_t rest = input_count % 8;
    auto total = rest == 0 ? subtrees[--depth] : SmallTree<Element>(tag, inputs + (input_count - rest), rest, index);
    while (depth > 0) total = hn::Add(subtrees[--depth], total);
    return total;
}

constexpr size_t kLarge = size_t{32} << 10;  // elements: from here on loops fetch ahead,
constexpr size_t kAhead = 256;               // by this many

// One pass over `kInputs` inputs (0: any number, known at run time), each sum stored in `kOutputs` places while it is in a
// register.
template <class Element, size_t kInputs, size_t kOutputs>
HWY_NOINLINE void Loop(typename Element::Stored* const* outputs, size_t output_count, const typename Element::Stored* const* inputs,
                       size_t input_count, size_t count, float scale) {
    using Stored = typename Element::Stored;
    // Copies that no store can change, so that they stay in registers.
    const Stored* in[kInputs > 0 ? kInputs : 1];
    Stored* out[kOutputs > 0 ? kOutputs : 1];
    for (size_t input = 0; input < kInputs; ++input) in[input] = inputs[input];
    for (size_t output = 0; output < kOutputs; ++output) out[output] = outputs[output];
    const auto step = [&](auto tag, size_t index) HWY_ATTR {
        const auto factor = hn::Set(tag, scale);
        if constexpr (kInputs == 0) {
            const auto total = hn::Mul(factor, LargeTree<Element>(tag, inputs, input_count, index));
            for (size_t output = 0; output < output_count; ++output) Element::Store(tag, total, outputs[output] + index);
        } else if constexpr (kOutputs == 0) {
            const auto total = hn::Mul(factor, Tree<Element, kInputs>(tag, in, index));
            for (size_t output = 0; output < output_count; ++output) Element::Store(tag, total, outputs[output] + index);
        } else {
            const auto total = hn::Mul(factor, Tree<Element, kInputs>(tag, in, index));
            for (size_t output = 0; output < kOutputs; ++output) Element::Store(tag, total, out[output] + index);
        }
    };
    const hn::ScalableTag<float> tag;
    const hn::CappedTag<float, 1> one_lane;
    const size_t lanes = hn::Lanes(tag);
    size_t index = 0;
    if constexpr (kInputs > 0) {
        // Much data: most of it lies in a peer's cache or further away, beyond what the processor fetches ahead by itself. Never
        // past the end, which is a peer's slice.
        const size_t fetched = count >= kLarge ? count - kAhead : 0;
        for (; index + 4 * lanes <= fetched; index += 4 * lanes) {
            for (size_t input = 0; input < kInputs; ++input) {
                hwy::Prefetch(in[input] + index + kAhead);
                hwy::Prefetch(in[input] + index + kAhead + 2 * lanes);
            }
            step(tag, index);
            step(tag, index + lanes);
            step(tag, index + 2 * lanes);
            step(tag, index + 3 * lanes);
        }
    }
    for (; index + 4 * lanes <= count; index += 4 * lanes) {
        step(tag, index);
        step(tag, index + lanes);
        step(tag, index + 2 * lanes);
        step(tag, index + 3 * lanes);
    }
    for (; index + lanes <= count; index += lanes) step(tag, index);
    for (; index < count; ++index) step(one_lane, index);
}

template <class Element, size_t kInputs>
void SumInto(typename Element::Stored* const* outputs, size_t output_count, const typename Element::Stored* const* inputs,
             size_t input_count, size_t count, float scale) {
    if (output_count == 1) return Loop<Element, kInputs, 1>(outputs, 1, inputs, input_count, count, scale);
    if (output_count == 2) return Loop<Element, kInputs, 2>(outputs, 2, inputs, input_count, count, scale);
    Loop<Element, kInputs, 0>(outputs, output_count, inputs, input_count, count, scale);
}

template <class Element>
void Sum(std::span<void* const> output_list, std::span<const void* const> input_list, size_t count, float scale) {
    const auto* outputs = reinterpret_cast<typename Element::Stored* const*>(output_list.data());
    const auto* inputs = reinterpret_cast<const typename Element::Stored* const*>(input_list.data());
    const size_t output_count = output_list.size();
    const size_t input_count = input_list.size();
    switch (input_count) {
        case 1:
            return SumInto<Element, 1>(outputs, output_count, inputs, input_count, count, scale);
        case 2:
            return SumInto<Element, 2>(outputs, output_count, inputs, input_count, count, scale);
        case 3:
            return SumInto<Element, 3>(outputs, output_count, inputs, input_count, count, scale);
        case 4:
            return SumInto<Element, 4>(outputs, output_count, inputs, input_count, count, scale);
        case 5:
            return SumInto<Element, 5>(outputs, output_count, inputs, input_count, count, scale);
        case 6:
            return SumInto<Element, 6>(outputs, output_count, inputs, input_count, count, scale);
        case 7:
            return SumInto<Element, 7>(outputs, output_count, inputs, input_count, count, scale);
        case 8:
            return SumInto<Element, 8>(outputs, output_count, inputs, input_count, count, scale);
        default:
            return Loop<Element, 0, 0>(outputs, output_count, inputs, input_count, count, scale);
    }
}

constexpr bool kPlain = HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR;

template <class Element>
void SumOrPlain(DataType type, std::span<void* const> outputs, std::span<const void* const> inputs, size_t count, float scale) {
    if constexpr (kPlain) {
        reference::sum(type, outputs, inputs, count, scale);
    } else {
        Sum<Element>(outputs, inputs, count, scale);
    }
}

void SumF32(std::span<void* const> outputs, std::span<const void* const> inputs, size_t count, float scale) {
    SumOrPlain<F32>(DataType::f32, outputs, inputs, count, scale);
}
void SumBf16(std::span<void* const> outputs, std::span<const void* const> inputs, size_t count, float scale) {
    SumOrPlain<Bf16>(DataType::bf16, outputs, inputs, count, scale);
}
void SumF16(std::span<void* const> outputs, std::span<const void* const> inputs, size_t count, float scale) {
    SumOrPlain<F16>(DataType::f16, outputs, inputs, count, scale);
}

}  // namespace lockstep::reduce_kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
