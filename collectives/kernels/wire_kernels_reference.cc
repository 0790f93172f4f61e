#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "collectives/kernels/wire_kernels.h"
#include "core/error.h"

namespace lockstep::wire_kernels::reference {

namespace {

uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
    return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t to_wire(DataType type, float value) {
    return type == DataType::bf16 ? to_bf16(value) : std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

float from_wire(DataType type, uint16_t bits) {
    return type == DataType::bf16 ? from_bf16(bits) : static_cast<float>(std::bit_cast<_Float16>(bits));
}

}  // namespace

Rounding pack(DataType type, float* values, void* wire, size_t count) {
    check(type == DataType::bf16 || type == DataType::f16, "the wire carries bf16 or f16");
    Rounding rounding;
    for (size_t index = 0; index < count; ++index) {
        const uint16_t bits = to_wire(type, values[index]);
        const float rounded = from_wire(type, bits);
        rounding.merge({std::fabs(values[index] - rounded), std::fabs(values[index])});
        values[index] = rounded;
        std::memcpy(static_cast<std::byte*>(wire) + 2 * index, &bits, sizeof bits);
    }
    return rounding;
}

void unpack(DataType type, const void* wire, float* values, size_t count) {
    check(type == DataType::bf16 || type == DataType::f16, "the wire carries bf16 or f16");
    for (size_t index = 0; index < count; ++index) {
        uint16_t bits = 0;
        std::memcpy(&bits, static_cast<const std::byte*>(wire) + 2 * index, sizeof bits);
        values[index] = from_wire(type, bits);
    }
}

}  // namespace lockstep::wire_kernels::reference
