// Element-wise loops that oneDNN lacks or does in more passes. They work on physical elements, padding included: padding is zero
// and stays zero. `type` is f32 or bf16 (stored, arithmetic is fp32, rounded to nearest even). They run in parallel on the
// caller's OpenMP pool; results do not depend on the number of threads. Outputs may be one of the inputs.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace lockstep::onednn {

struct Operand {
    void* data = nullptr;
    DataType type = DataType::f32;
};

// out = a + b
void add(const Operand& out, const Operand& a, const Operand& b, int64_t count);

// out = max(a + b, 0)
void add_relu(const Operand& out, const Operand& a, const Operand& b, int64_t count);

// Backward of ReLU from its output: out = y > 0 ? gradient : 0; with two gradients their sum.
void relu_backward(const Operand& out, const Operand& y, const Operand& gradient, int64_t count);
void relu_backward(const Operand& out, const Operand& y, const Operand& gradient_a, const Operand& gradient_b, int64_t count);

// out = a * factors
void multiply(const Operand& out, const Operand& a, const float* factors, int64_t count);

// out = scale * a, or out += scale * a when `accumulate`. Serial: for one value per channel.
void scale_into(float* out, const float* a, float scale, bool accumulate, int64_t count);

}  // namespace lockstep::onednn
