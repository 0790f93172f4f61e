#include "nn/onednn/kernels/elementwise.h"

#include <bit>

#include "core/error.h"
#include "nn/onednn/kernels/parallel.h"

namespace lockstep::onednn {

namespace {

constexpr int64_t kSmallestPiece = 16384;

struct Bf16 {
    uint16_t bits;
};

[[gnu::always_inline]] inline float load(float value) { return value; }
[[gnu::always_inline]] inline float load(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }
[[gnu::always_inline]] inline void store(float& out, float value) { out = value; }
// Rounds to nearest even; NaN keeps its quiet bit.
[[gnu::always_inline]] inline void store(Bf16& out, float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
    const uint32_t quiet_nan = bits | 0x400000U;
    out.bits = static_cast<uint16_t>((value != value ? quiet_nan : rounded) >> 16);
}

// The same loop for three instruction sets, chosen at run time. `body(i)` is inlined and vectorised in each; its elements are
// independent, so it may write over its inputs.
template <typename Body>
void loop_baseline(const Body body, int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) body(i);
}
template <typename Body>
[[gnu::target("avx2")]] void loop_avx2(const Body body, int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) body(i);
}
template <typename Body>
[[gnu::target("avx512f,avx512bw")]] void loop_avx512(const Body body, int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) body(i);
}

template <typename Body>
void run_loop(int64_t count, const Body& body) {
    auto* const loop = __builtin_cpu_supports("avx512bw") != 0 ? loop_avx512<Body>
                       : __builtin_cpu_supports("avx2") != 0   ? loop_avx2<Body>
                                                               : loop_baseline<Body>;
    parallel_ranges(count, kSmallestPiece, [&](int64_t begin, int64_t end) { loop(body, begin, end); });
}

// value where `passes`, else 0. By bits: as a condition, the compiler makes a branch of it, which costs four times the loop.
[[gnu::always_inline]] inline float where(bool passes, float value) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & (0U - static_cast<uint32_t>(passes)));
}

template <typename T>
T* as(const Operand& operand) {
    return static_cast<T*>(operand.data);
}

// Calls work(T()) with the element type of `out`.
template <typename Work>
void with_type_of(const Operand& out, const Work& work) {
    check(out.type == DataType::f32 || out.type == DataType::bf16, "element-wise kernels know f32 and bf16 only");
    if (out.type == DataType::f32) {
        work(float());
    } else {
        work(Bf16());
    }
}

}  // namespace

void add(const Operand& out, const Operand& a, const Operand& b, int64_t count) {
    with_type_of(out, [&]<typename T>(T) {
        run_loop(count, [to = as<T>(out), x = as<T>(a), y = as<T>(b)](int64_t i)
                            [[gnu::always_inline]] { store(to[i], load(x[i]) + load(y[i])); });
    });
}

void add_relu(const Operand& out, const Operand& a, const Operand& b, int64_t count) {
    with_type_of(out, [&]<typename T>(T) {
        run_loop(count, [to = as<T>(out), x = as<T>(a), y = as<T>(b)](int64_t i) [[gnu::always_inline]] {
            const float sum = load(x[i]) + load(y[i]);
            store(to[i], sum > 0.0F || sum != sum ? sum : 0.0F);  // NaN must not be hidden
        });
    });
}

void relu_backward(const Operand& out, const Operand& y, const Operand& gradient, int64_t count) {
    with_type_of(out, [&]<typename T>(T) {
        run_loop(count, [to = as<T>(out), mask = as<T>(y), from = as<T>(gradient)](int64_t i)
                            [[gnu::always_inline]] { store(to[i], where(load(mask[i]) > 0.0F, load(from[i]))); });
    });
}

void relu_backward(const Operand& out, const Operand& y, const Operand& gradient_a, const Operand& gradient_b, int64_t count) {
    with_type_of(out, [&]<typename T>(T) {
        run_loop(count, [to = as<T>(out), mask = as<T>(y), a = as<T>(gradient_a), b = as<T>(gradient_b)](int64_t i)
                            [[gnu::always_inline]] { store(to[i], where(load(mask[i]) > 0.0F, load(a[i]) + load(b[i]))); });
    });
}

void multiply(const Operand& out, const Operand& a, const float* factors, int64_t count) {
    with_type_of(out, [&]<typename T>(T) {
        run_loop(count, [to = as<T>(out), from = as<T>(a), factors](int64_t i)
                            [[gnu::always_inline]] { store(to[i], load(from[i]) * factors[i]); });
    });
}

void scale_into(float* out, const float* a, float scale, bool accumulate, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = (accumulate ? out[i] : 0.0F) + scale * a[i];
}

}  // namespace lockstep::onednn
