#include "nn/onednn/kernels/elementwise.h"

#include <bit>

#include "core/error.h"
#include "nn/onednn/kernels/parallel.h"

// The compiler makes one copy of a kernel per instruction set and the loader chooses. The bodies are templates that must be inlined
// into each copy to be vectorised for it.
#define LOCKSTEP_KERNEL [[gnu::target_clones("avx512f", "avx2", "default")]]
#define LOCKSTEP_BODY [[gnu::always_inline]] inline

namespace lockstep::onednn {

namespace {

constexpr int64_t kSmallestPiece = 16384;

struct Bf16 {
    uint16_t bits;
};

LOCKSTEP_BODY float load(float value) { return value; }
LOCKSTEP_BODY float load(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }
LOCKSTEP_BODY void store(float& out, float value) { out = value; }
// Rounds to nearest even; NaN keeps its quiet bit.
LOCKSTEP_BODY void store(Bf16& out, float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
    const uint32_t quiet_nan = bits | 0x400000U;
    out.bits = static_cast<uint16_t>((value != value ? quiet_nan : rounded) >> 16);
}

template <typename T>
LOCKSTEP_BODY void add_body(T* out, const T* a, const T* b, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) store(out[i], load(a[i]) + load(b[i]));
}
template <typename T>
LOCKSTEP_BODY void add_relu_body(T* out, const T* a, const T* b, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
        const float sum = load(a[i]) + load(b[i]);
        store(out[i], sum > 0.0F || sum != sum ? sum : 0.0F);  // NaN must not be hidden
    }
}
template <typename T>
LOCKSTEP_BODY void relu_backward_body(T* out, const T* y, const T* gradient, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
        const float value = load(gradient[i]);
        store(out[i], load(y[i]) > 0.0F ? value : 0.0F);
    }
}
template <typename T>
LOCKSTEP_BODY void relu_backward_two_body(T* out, const T* y, const T* a, const T* b, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
        const float sum = load(a[i]) + load(b[i]);
        store(out[i], load(y[i]) > 0.0F ? sum : 0.0F);
    }
}
template <typename T>
LOCKSTEP_BODY void multiply_body(T* out, const T* a, const float* factors, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) store(out[i], load(a[i]) * factors[i]);
}

LOCKSTEP_KERNEL void add_f32(float* out, const float* a, const float* b, int64_t count) { add_body(out, a, b, count); }
LOCKSTEP_KERNEL void add_bf16(Bf16* out, const Bf16* a, const Bf16* b, int64_t count) { add_body(out, a, b, count); }
LOCKSTEP_KERNEL void add_relu_f32(float* out, const float* a, const float* b, int64_t count) { add_relu_body(out, a, b, count); }
LOCKSTEP_KERNEL void add_relu_bf16(Bf16* out, const Bf16* a, const Bf16* b, int64_t count) { add_relu_body(out, a, b, count); }
LOCKSTEP_KERNEL void relu_backward_f32(float* out, const float* y, const float* gradient, int64_t count) {
    relu_backward_body(out, y, gradient, count);
}
LOCKSTEP_KERNEL void relu_backward_bf16(Bf16* out, const Bf16* y, const Bf16* gradient, int64_t count) {
    relu_backward_body(out, y, gradient, count);
}
LOCKSTEP_KERNEL void relu_backward_two_f32(float* out, const float* y, const float* a, const float* b, int64_t count) {
    relu_backward_two_body(out, y, a, b, count);
}
LOCKSTEP_KERNEL void relu_backward_two_bf16(Bf16* out, const Bf16* y, const Bf16* a, const Bf16* b, int64_t count) {
    relu_backward_two_body(out, y, a, b, count);
}
LOCKSTEP_KERNEL void multiply_f32(float* out, const float* a, const float* factors, int64_t count) {
    multiply_body(out, a, factors, count);
}
LOCKSTEP_KERNEL void multiply_bf16(Bf16* out, const Bf16* a, const float* factors, int64_t count) {
    multiply_body(out, a, factors, count);
}

template <typename T>
T* at(const Operand& operand, int64_t index) {
    return static_cast<T*>(operand.data) + index;
}

// Calls f32_work or bf16_work on pieces of [0, count).
template <typename F32Work, typename Bf16Work>
void dispatch(DataType type, int64_t count, const F32Work& f32_work, const Bf16Work& bf16_work) {
    check(type == DataType::f32 || type == DataType::bf16, "element-wise kernels know f32 and bf16 only");
    if (type == DataType::f32) {
        parallel_ranges(count, kSmallestPiece, f32_work);
    } else {
        parallel_ranges(count, kSmallestPiece, bf16_work);
    }
}

}  // namespace

void add(const Operand& out, const Operand& a, const Operand& b, int64_t count) {
    dispatch(
        out.type, count, [&](int64_t i, int64_t end) { add_f32(at<float>(out, i), at<float>(a, i), at<float>(b, i), end - i); },
        [&](int64_t i, int64_t end) { add_bf16(at<Bf16>(out, i), at<Bf16>(a, i), at<Bf16>(b, i), end - i); });
}

void add_relu(const Operand& out, const Operand& a, const Operand& b, int64_t count) {
    dispatch(
        out.type, count,
        [&](int64_t i, int64_t end) { add_relu_f32(at<float>(out, i), at<float>(a, i), at<float>(b, i), end - i); },
        [&](int64_t i, int64_t end) { add_relu_bf16(at<Bf16>(out, i), at<Bf16>(a, i), at<Bf16>(b, i), end - i); });
}

void relu_backward(const Operand& out, const Operand& y, const Operand& gradient, int64_t count) {
    dispatch(
        out.type, count,
        [&](int64_t i, int64_t end) { relu_backward_f32(at<float>(out, i), at<float>(y, i), at<float>(gradient, i), end - i); },
        [&](int64_t i, int64_t end) { relu_backward_bf16(at<Bf16>(out, i), at<Bf16>(y, i), at<Bf16>(gradient, i), end - i); });
}

void relu_backward(const Operand& out, const Operand& y, const Operand& gradient_a, const Operand& gradient_b, int64_t count) {
    dispatch(
        out.type, count,
        [&](int64_t i, int64_t end) {
            relu_backward_two_f32(at<float>(out, i), at<float>(y, i), at<float>(gradient_a, i), at<float>(gradient_b, i), end - i);
        },
        [&](int64_t i, int64_t end) {
            relu_backward_two_bf16(at<Bf16>(out, i), at<Bf16>(y, i), at<Bf16>(gradient_a, i), at<Bf16>(gradient_b, i), end - i);
        });
}

void multiply(const Operand& out, const Operand& a, const float* factors, int64_t count) {
    dispatch(
        out.type, count, [&](int64_t i, int64_t end) { multiply_f32(at<float>(out, i), at<float>(a, i), factors + i, end - i); },
        [&](int64_t i, int64_t end) { multiply_bf16(at<Bf16>(out, i), at<Bf16>(a, i), factors + i, end - i); });
}

void scale_into(float* out, const float* a, float scale, bool accumulate, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = (accumulate ? out[i] : 0.0F) + scale * a[i];
}

}  // namespace lockstep::onednn
