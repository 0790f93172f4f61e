#include "nn/onednn/kernels/pooling_lines.h"

// Compiles the loops for AVX2 and AVX-512; the best one of this processor is taken at run time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "nn/onednn/kernels/pooling_lines_targets.h"
#include "hwy/foreach_target.h"
// The build's own instruction set comes last:
#include "nn/onednn/kernels/pooling_lines_targets.h"

namespace lockstep::onednn::pool_lines {

HWY_EXPORT(MaxForward);
HWY_EXPORT(MaxBackward);
HWY_EXPORT(AverageForward);
HWY_EXPORT(AverageBackward);

void max_forward(const Line& line) { HWY_DYNAMIC_DISPATCH(MaxForward)(line); }
void max_backward(const Line& line) { HWY_DYNAMIC_DISPATCH(MaxBackward)(line); }
void average_forward(const Line& line) { HWY_DYNAMIC_DISPATCH(AverageForward)(line); }
void average_backward(const Line& line) { HWY_DYNAMIC_DISPATCH(AverageBackward)(line); }

}  // namespace lockstep::onednn::pool_lines
