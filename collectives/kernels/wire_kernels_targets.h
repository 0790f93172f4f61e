// The vector loops of wire_kernels.cc. Included once for each instruction set by Highway's foreach_target.h, so without a guard.
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::wire_kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using HalfTag = hn::Rebind<uint16_t, FloatTag>;

// To nearest, ties to even, on the bits; Highway's own conversion truncates on some instruction sets. Adding cannot overflow but
// for a NaN, which keeps its upper bits and is made quiet.
struct Bfloat16 {
    template <class V>
    static auto to_bits(FloatTag tag, V value) {
        const hn::Repartition<uint32_t, FloatTag> bits_tag;
        const auto bits = hn::BitCast(bits_tag, value);
        const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1));
        const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(bits_tag, 0x7FFF))));
        const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 0x40));
        const auto is_number = hn::RebindMask(bits_tag, hn::Eq(value, value));
        static_cast<void>(tag);
        return hn::TruncateTo(HalfTag(), hn::IfThenElse(is_number, rounded, quiet));
    }
    template <class V>
    static auto from_bits(FloatTag tag, V bits) {
        const hn::Repartition<uint32_t, FloatTag> bits_tag;
        return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(bits_tag, bits)));
    }
};

struct Float16 {
    using Tag = hn::Rebind<hwy::float16_t, FloatTag>;
    template <class V>
    static auto to_bits(FloatTag, V value) {
        return hn::BitCast(HalfTag(), hn::DemoteTo(Tag(), value));
    }
    template <class V>
    static auto from_bits(FloatTag tag, V bits) {
        return hn::PromoteTo(tag, hn::BitCast(Tag(), bits));
    }
};

// One vector's worth; `errors` and `largest` collect. A NaN compares false, so it counts in neither.
template <class Type, class V>
HWY_INLINE void PackVector(float* values, uint16_t* wire, V& errors, V& largest) {
    const FloatTag tag;
    const auto value = hn::LoadU(tag, values);
    const auto bits = Type::to_bits(tag, value);
    const auto rounded = Type::from_bits(tag, bits);
    errors = hn::Max(hn::Abs(hn::Sub(value, rounded)), errors);
    largest = hn::Max(hn::Abs(value), largest);
    hn::StoreU(rounded, tag, values);
    hn::StoreU(bits, HalfTag(), wire);
}

// The tail passes through a padded block, so that every element is rounded by the same instructions.
template <class Type>
Rounding PackAll(float* values, uint16_t* wire, size_t count) {
    const FloatTag tag;
    const size_t lanes = hn::Lanes(tag);
    auto errors = hn::Zero(tag);
    auto largest = hn::Zero(tag);
    size_t index = 0;
    for (; index + lanes <= count; index += lanes) PackVector<Type>(values + index, wire + index, errors, largest);
    if (index < count) {
        HWY_ALIGN float value_block[hn::MaxLanes(FloatTag())] = {};
        HWY_ALIGN uint16_t wire_block[hn::MaxLanes(FloatTag())] = {};
        std::memcpy(value_block, values + index, (count - index) * sizeof(float));
        PackVector<Type>(value_block, wire_block, errors, largest);
        std::memcpy(values + index, value_block, (count - index) * sizeof(float));
        std::memcpy(wire + index, wire_block, (count - index) * sizeof(uint16_t));
    }
    return {hn::GetLane(hn::MaxOfLanes(tag, errors)), hn::GetLane(hn::MaxOfLanes(tag, largest))};
}

template <class Type>
void UnpackAll(const uint16_t* wire, float* values, size_t count) {
    const FloatTag tag;
    const size_t lanes = hn::Lanes(tag);
    size_t index = 0;
    for (; index + lanes <= count; index += lanes) {
        hn::StoreU(Type::from_bits(tag, hn::LoadU(HalfTag(), wire + index)), tag, values + index);
    }
    if (index < count) {
        HWY_ALIGN float value_block[hn::MaxLanes(FloatTag())] = {};
        HWY_ALIGN uint16_t wire_block[hn::MaxLanes(FloatTag())] = {};
        std::memcpy(wire_block, wire + index, (count - index) * sizeof(uint16_t));
        hn::Store(Type::from_bits(tag, hn::Load(HalfTag(), wire_block)), tag, value_block);
        std::memcpy(values + index, value_block, (count - index) * sizeof(float));
    }
}

Rounding PackBfloat16(float* values, uint16_t* wire, size_t count) { return PackAll<Bfloat16>(values, wire, count); }
Rounding PackFloat16(float* values, uint16_t* wire, size_t count) { return PackAll<Float16>(values, wire, count); }
void UnpackBfloat16(const uint16_t* wire, float* values, size_t count) { UnpackAll<Bfloat16>(wire, values, count); }
void UnpackFloat16(const uint16_t* wire, float* values, size_t count) { UnpackAll<Float16>(wire, values, count); }

}  // namespace lockstep::wire_kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
