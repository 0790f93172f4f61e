// One element at a time, as the formula says it.
#include <bit>
#include <cmath>

#include "nn/onednn/kernels/sigmoid.h"

namespace lockstep::onednn::plain {

namespace {

// bf16: to nearest, ties to even; NaN stays NaN.
uint16_t to_bf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = std::isnan(value) ? bits | 0x400000U : bits + 0x7FFFU + ((bits >> 16) & 1U);
    return static_cast<uint16_t>(rounded >> 16);
}
float of_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
float of(float x) { return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(x)))); }

}  // namespace

void sigmoid(const Operand& out, const Operand& a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        if (out.type == DataType::f32) {
            static_cast<float*>(out.data)[i] = of(static_cast<const float*>(a.data)[i]);
        } else {
            static_cast<uint16_t*>(out.data)[i] = to_bf16(of(of_bf16(static_cast<const uint16_t*>(a.data)[i])));
        }
    }
}

}  // namespace lockstep::onednn::plain
