#include "collectives/kernels/reduce_kernels.h"

#include <algorithm>

#include "core/error.h"

// Compiles the loops for every instruction set; the best one of this processor is taken at run time. The early SSE sets lack the
// conversion of half floats; processors that have nothing better run the plain loops.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "collectives/kernels/reduce_kernels_targets.h"
#include "hwy/foreach_target.h"
// The build's own instruction set comes last:
#include "collectives/kernels/reduce_kernels_targets.h"

namespace lockstep::reduce_kernels {

HWY_EXPORT(SumF32);
HWY_EXPORT(SumBf16);
HWY_EXPORT(SumF16);

void sum(DataType type, std::span<void* const> outputs, std::span<const void* const> inputs, size_t count, float scale) {
    check(!inputs.empty(), "a sum has inputs");
    switch (type) {
        case DataType::f32:
            return HWY_DYNAMIC_DISPATCH(SumF32)(outputs, inputs, count, scale);
        case DataType::bf16:
            return HWY_DYNAMIC_DISPATCH(SumBf16)(outputs, inputs, count, scale);
        case DataType::f16:
            return HWY_DYNAMIC_DISPATCH(SumF16)(outputs, inputs, count, scale);
        default:
            check(false, "sums are made for f32, bf16 and f16");
    }
}

void sum(float* output, const float* const* inputs, int rank_count, size_t count) {
    constexpr size_t kMost = 1024;
    check(rank_count >= 1 && static_cast<size_t>(rank_count) <= kMost, "more ranks than the kernels are made for");
    const void* all[kMost];
    std::copy_n(inputs, rank_count, all);
    void* const outputs[] = {output};
    sum(DataType::f32, outputs, std::span(all, static_cast<size_t>(rank_count)), count);
}

std::vector<std::string> instruction_sets() {
    hwy::SetSupportedTargetsForTest(0);
    std::vector<std::string> names;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) names.emplace_back(hwy::TargetName(target));
    return names;
}

void use_instruction_set(std::string_view name) {
    hwy::SetSupportedTargetsForTest(0);
    int64_t wanted = 0;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
        if (name == hwy::TargetName(target)) wanted = target;
    }
    check(name.empty() || wanted != 0, "an instruction set of instruction_sets()");
    hwy::SetSupportedTargetsForTest(wanted);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace lockstep::reduce_kernels
