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

// 1 / (1 + e^-x), within a few units of the last place. Below -87 the smallest normal results stand for smaller ones. NaN stays
// NaN.
//
// e^-x = 2^n 2^f with n the whole number next to -x log2(e) and f the rest, 2^f by a polynomial of degree 6 (the coefficients of
// Cephes' exp2f). The reciprocal is the processor's estimate of 12 bits after one step of Newton's.
template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D tag, hn::Vec<D> x) {
    const hn::RebindToSigned<D> int_tag;
    const auto constant = [tag](float value) HWY_ATTR { return hn::Set(tag, value); };
    const auto exponent = hn::Max(hn::Min(hn::Neg(x), constant(87.0F)), constant(-87.0F));
    const auto rounder = constant(12582912.0F);  // 1.5 * 2^23: what is added to it is rounded to a whole number, in its low bits
    const auto shifted = hn::MulAdd(exponent, constant(1.44269502F), rounder);
    const auto whole = hn::Sub(shifted, rounder);
    const auto rest = hn::MulAdd(exponent, constant(1.92596299e-8F), hn::MulSub(exponent, constant(1.44269502F), whole));
    auto power = hn::MulAdd(constant(1.535336188e-4F), rest, constant(1.339887440e-3F));
    power = hn::MulAdd(power, rest, constant(9.618437357e-3F));
    power = hn::MulAdd(power, rest, constant(5.550332471e-2F));
    power = hn::MulAdd(power, rest, constant(2.402264791e-1F));
    power = hn::MulAdd(power, rest, constant(6.931472028e-1F));
    power = hn::MulAdd(power, rest, constant(1.0F));
    power = hn::BitCast(tag, hn::Add(hn::BitCast(int_tag, power), hn::ShiftLeft<23>(hn::BitCast(int_tag, shifted))));
    const auto divisor = hn::Add(power, constant(1.0F));
    const auto estimate = hn::ApproximateReciprocal(divisor);
    const auto y = hn::MulAdd(estimate, hn::NegMulAdd(divisor, estimate, constant(1.0F)), estimate);
    return hn::IfThenElse(hn::IsNaN(x), x, y);
}

}  // namespace lockstep::onednn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
