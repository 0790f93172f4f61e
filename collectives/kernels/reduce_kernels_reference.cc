#include <bit>
#include <cstdint>
#include <cstring>

#include "collectives/kernels/reduce_kernels.h"
#include "core/error.h"

namespace lockstep::reduce_kernels::reference {

namespace {

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

float from_bf16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

uint16_t to_bf16(float value) {
    const uint32_t bits = bits_of(value);
    if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);  // a quiet NaN
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_f16(uint16_t half) {
    const uint32_t sign = uint32_t{half} >> 15 << 31;
    const uint32_t exponent = half >> 10 & 0x1f;
    const uint32_t fraction = half & 0x3ff;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13 | (fraction != 0 ? 0x400000U : 0U));
    if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;  // denormal or zero: exact in fp32
    return std::bit_cast<float>(sign | bits_of(magnitude));
}

uint16_t to_f16(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));  // a quiet NaN
    if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more round to infinity
    if (magnitude < 0x38800000) {  // below the smallest normal half: the fp32 addition rounds to multiples of 2^-24
        const float rounded = std::bit_cast<float>(magnitude) + 0.5F;  // 0.5 has its last bit at 2^-24
        return static_cast<uint16_t>(sign | (bits_of(rounded) - bits_of(0.5F)));
    }
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - (112 << 10)));
}

float load(DataType type, const void* data, size_t index) {
    if (type == DataType::f32) return static_cast<const float*>(data)[index];
    const uint16_t half = static_cast<const uint16_t*>(data)[index];
    return type == DataType::bf16 ? from_bf16(half) : from_f16(half);
}

void store(DataType type, float value, void* data, size_t index) {
    if (type == DataType::f32) {
        static_cast<float*>(data)[index] = value;
    } else {
        static_cast<uint16_t*>(data)[index] = type == DataType::bf16 ? to_bf16(value) : to_f16(value);
    }
}

float tree_sum(DataType type, std::span<const void* const> inputs, size_t index) {
    if (inputs.size() == 1) return load(type, inputs[0], index);
    const size_t left = std::bit_floor(inputs.size() - 1);
    return tree_sum(type, inputs.first(left), index) + tree_sum(type, inputs.subspan(left), index);
}

}  // namespace

void sum(DataType type, std::span<void* const> outputs, std::span<const void* const> inputs, size_t count, float scale) {
    for (size_t index = 0; index < count; ++index) {
        const float total = scale * tree_sum(type, inputs, index);
        for (void* output : outputs) store(type, total, output, index);
    }
}

}  // namespace lockstep::reduce_kernels::reference
