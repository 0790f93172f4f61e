// Numbers on the wire: fp32 values are rounded to bf16 or fp16 (to nearest, ties to even) before they travel, and sums are made in
// fp32. Whoever sends a value keeps the rounded one too, so that both ends go on with the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.h"

namespace lockstep::wire_kernels {

// Of the values that were packed: what rounding did to them. Relative error of a step: max_error / max_value.
struct Rounding {
    float max_error = 0.0F;  // largest |value - rounded value|
    float max_value = 0.0F;  // largest |value|
    void merge(const Rounding& other);
    float relative() const { return max_value > 0.0F ? max_error / max_value : 0.0F; }
};

// Writes `values` to `wire` (2 bytes each) and leaves the rounded values in `values`. `type`: bf16 or f16. A value too large for
// f16 becomes infinite, a NaN stays one; any alignment.
Rounding pack(DataType type, float* values, void* wire, size_t count);

// values[i] = wire[i], exactly.
void unpack(DataType type, const void* wire, float* values, size_t count);

// values[i] = what pack would have left there.
void round(DataType type, float* values, size_t count);

// The plain loops that the above are compared with.
namespace reference {
Rounding pack(DataType type, float* values, void* wire, size_t count);
void unpack(DataType type, const void* wire, float* values, size_t count);
}  // namespace reference

}  // namespace lockstep::wire_kernels
