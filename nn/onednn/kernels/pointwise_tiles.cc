#include "nn/onednn/kernels/pointwise_tiles.h"

// Compiles the loops for AVX2 and AVX-512; the best one of this processor is taken at run time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "nn/onednn/kernels/pointwise_targets.h"
#include "hwy/foreach_target.h"
// The build's own instruction set comes last:
#include "nn/onednn/kernels/pointwise_targets.h"

namespace lockstep::onednn::pointwise {

HWY_EXPORT(LaneCount);
HWY_EXPORT(MultiplyPixels);
HWY_EXPORT(ProductRows);

int64_t lane_count() { return HWY_DYNAMIC_DISPATCH(LaneCount)(); }
void multiply(const Product& product) { HWY_DYNAMIC_DISPATCH(MultiplyPixels)(product); }
int64_t product_rows() { return HWY_DYNAMIC_DISPATCH(ProductRows)(); }

}  // namespace lockstep::onednn::pointwise
