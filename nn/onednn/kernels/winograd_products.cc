#include "nn/onednn/kernels/winograd_products.h"

// Compiles the loops for AVX2 and AVX-512; the best one of this processor is taken at run time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "nn/onednn/kernels/winograd_products_targets.h"
#include "hwy/foreach_target.h"
// The build's own instruction set comes last:
#include "nn/onednn/kernels/winograd_products_targets.h"

namespace lockstep::onednn::winograd {

HWY_EXPORT(MultiplyPoints);
HWY_EXPORT(ProductRows);
HWY_EXPORT(MultiplyOuter);

void multiply(const Product& product) { HWY_DYNAMIC_DISPATCH(MultiplyPoints)(product); }
int64_t product_rows() { return HWY_DYNAMIC_DISPATCH(ProductRows)(); }
void multiply_outer(const OuterProduct& product) { HWY_DYNAMIC_DISPATCH(MultiplyOuter)(product); }

}  // namespace lockstep::onednn::winograd
