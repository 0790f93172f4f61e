#include "collectives/kernels/wire_kernels.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

// Compiles the loops for every instruction set; the best one of this processor is taken at run time.
#define HWY_TARGET_INCLUDE "collectives/kernels/wire_kernels_targets.h"
#include "hwy/foreach_target.h"
// The build's own instruction set comes last:
#include "collectives/kernels/wire_kernels_targets.h"

namespace lockstep::wire_kernels {

HWY_EXPORT(PackBfloat16);
HWY_EXPORT(PackFloat16);
HWY_EXPORT(UnpackBfloat16);
HWY_EXPORT(UnpackFloat16);

void Rounding::merge(const Rounding& other) {
    max_error = std::max(max_error, other.max_error);
    max_value = std::max(max_value, other.max_value);
}

Rounding pack(DataType type, float* values, void* wire, size_t count) {
    auto* const bits = static_cast<uint16_t*>(wire);
    if (type == DataType::bf16) return HWY_DYNAMIC_DISPATCH(PackBfloat16)(values, bits, count);
    check(type == DataType::f16, "the wire carries bf16 or f16");
    return HWY_DYNAMIC_DISPATCH(PackFloat16)(values, bits, count);
}

void unpack(DataType type, const void* wire, float* values, size_t count) {
    const auto* const bits = static_cast<const uint16_t*>(wire);
    if (type == DataType::bf16) return HWY_DYNAMIC_DISPATCH(UnpackBfloat16)(bits, values, count);
    check(type == DataType::f16, "the wire carries bf16 or f16");
    HWY_DYNAMIC_DISPATCH(UnpackFloat16)(bits, values, count);
}

void round(DataType type, float* values, size_t count) {
    constexpr size_t kBlockCount = 4096;
    uint16_t block[kBlockCount];
    for (size_t start = 0; start < count; start += kBlockCount)
        pack(type, values + start, block, std::min(kBlockCount, count - start));
}

}  // namespace lockstep::wire_kernels
