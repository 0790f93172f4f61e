#include "nn/onednn/kernels/sigmoid.h"

#include "core/error.h"
#include "nn/onednn/kernels/parallel.h"

// Compiles the loop for AVX2 and AVX-512; the best one of this processor is taken at run time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "nn/onednn/kernels/sigmoid_targets.h"
#include "hwy/foreach_target.h"
// The build's own instruction set comes last:
#include "nn/onednn/kernels/sigmoid_targets.h"

namespace lockstep::onednn {

HWY_EXPORT(Sigmoid);

void sigmoid(const Operand& out, const Operand& a, int64_t count) {
    constexpr int64_t kSmallestPiece = 8192;
    check(out.type == a.type && (out.type == DataType::f32 || out.type == DataType::bf16), "the sigmoid knows f32 and bf16 only");
    const auto work = HWY_DYNAMIC_DISPATCH(Sigmoid);
    parallel_ranges(count, kSmallestPiece, [&](int64_t begin, int64_t end) { work(out, a, begin, end); });
}

}  // namespace lockstep::onednn
