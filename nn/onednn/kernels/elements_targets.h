// How the vector loops of this folder read and write elements. Included by each x_targets.h once for each instruction set, so
// without a guard; `lockstep::onednn::HWY_NAMESPACE` is theirs to use.
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::onednn::HWY_NAMESPACE {

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

// 1 / (1 + 2^t) in place of each of kCount values t; with t = -x log2(e) the sigmoid of x. Relative errors are some 4e-7, and
// |x| 2^-23 more where t was rounded. Below 2^-126 the smallest normal results stand for smaller ones. NaN stays NaN.
//
// 2^t = 2^n 2^f with n the whole number next to t and f the rest; 2^f by a polynomial of degree 5, 1 at 0 and else with the least
// largest relative error over -1/2...1/2 (1e-7). The reciprocal is the processor's estimate of 12 bits after one step of Newton's.
// The values take each step side by side: one after the other, each would wait for its own results.
template <size_t kCount, class D>
HWY_INLINE void SigmoidOfPowers(D tag, hn::Vec<D> (&t)[kCount]) {
    using V = hn::Vec<D>;
    const hn::RebindToSigned<D> int_tag;
    const auto constant = [tag](float value) HWY_ATTR { return hn::Set(tag, value); };
    // What is added to 1.5 * 2^23 is rounded to a whole number, in the low bits; with 127 these are the exponent's bits of 2^n.
    const V rounder = constant(12582912.0F + 127.0F);
    V scale[kCount], square[kCount], power[kCount];
    // The second operand is the result of x86's minimum and maximum if either is no number.
    for (V& value : t) value = hn::Max(constant(-126.0F), hn::Min(constant(126.0F), value));
    for (size_t i = 0; i < kCount; ++i) scale[i] = hn::Add(t[i], rounder);
    for (size_t i = 0; i < kCount; ++i) t[i] = hn::Sub(t[i], hn::Sub(scale[i], rounder));
    for (size_t i = 0; i < kCount; ++i) square[i] = hn::Mul(t[i], t[i]);
    for (size_t i = 0; i < kCount; ++i) power[i] = hn::MulAdd(t[i], constant(1.326471451e-3F), constant(9.671509266e-3F));
    for (size_t i = 0; i < kCount; ++i) {
        power[i] = hn::MulAdd(power[i], square[i], hn::MulAdd(t[i], constant(5.550733581e-2F), constant(2.402224243e-1F)));
    }
    for (size_t i = 0; i < kCount; ++i) {
        power[i] = hn::MulAdd(power[i], square[i], hn::MulAdd(t[i], constant(6.931470037e-1F), constant(1.0F)));
    }
    for (size_t i = 0; i < kCount; ++i) scale[i] = hn::BitCast(tag, hn::ShiftLeft<23>(hn::BitCast(int_tag, scale[i])));
    for (size_t i = 0; i < kCount; ++i) t[i] = hn::MulAdd(power[i], scale[i], constant(1.0F));  // the divisor
    for (size_t i = 0; i < kCount; ++i) power[i] = hn::ApproximateReciprocal(t[i]);
    for (size_t i = 0; i < kCount; ++i) t[i] = hn::MulAdd(power[i], hn::NegMulAdd(t[i], power[i], constant(1.0F)), power[i]);
}
constexpr float kMinusLog2E = -1.44269504F;

}  // namespace lockstep::onednn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
