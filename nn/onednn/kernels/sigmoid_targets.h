// The vector loop of sigmoid.cc. Included once for each instruction set by Highway's foreach_target.h, so without a guard.
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "nn/onednn/kernels/elements_targets.h"
#include "nn/onednn/kernels/sigmoid.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::onednn::HWY_NAMESPACE {

template <class Element>
void SigmoidOfRange(const Operand& out, const Operand& a, int64_t begin, int64_t end) {
    using Stored = typename Element::Stored;
    const hn::ScalableTag<float> tag;
    constexpr int64_t kLanes = hn::MaxLanes(tag), kVectors = 2;
    const auto* source = static_cast<const Stored*>(a.data);
    auto* result = static_cast<Stored*>(out.data);
    const auto to_powers = hn::Set(tag, kMinusLog2E);
    int64_t at = begin;
    for (; at + kVectors * kLanes <= end; at += kVectors * kLanes) {
        hn::Vec<decltype(tag)> values[kVectors];
        for (int64_t i = 0; i < kVectors; ++i) values[i] = hn::Mul(to_powers, Element::Load(tag, source + at + i * kLanes));
        SigmoidOfPowers<kVectors>(tag, values);
        for (int64_t i = 0; i < kVectors; ++i) Element::Store(tag, values[i], result + at + i * kLanes, false);
    }
    if (at == end) return;
    // The same arithmetic for the rest, so that where a range ends changes no bit.
    Stored rest[kVectors * kLanes] = {};
    for (int64_t i = at; i < end; ++i) rest[i - at] = source[i];
    for (int64_t i = 0; i < kVectors; ++i) {
        hn::Vec<decltype(tag)> value[1] = {hn::Mul(to_powers, Element::Load(tag, rest + i * kLanes))};
        SigmoidOfPowers<1>(tag, value);
        Element::Store(tag, value[0], rest + i * kLanes, false);
    }
    for (int64_t i = at; i < end; ++i) result[i] = rest[i - at];
}

void Sigmoid(const Operand& out, const Operand& a, int64_t begin, int64_t end) {
    if constexpr (kPlain) {
        plain::sigmoid(out, a, begin, end);
    } else if (out.type == DataType::f32) {
        SigmoidOfRange<F32>(out, a, begin, end);
    } else {
        SigmoidOfRange<Bf16>(out, a, begin, end);
    }
}

}  // namespace lockstep::onednn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
