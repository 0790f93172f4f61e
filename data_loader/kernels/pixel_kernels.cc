#include "data_loader/kernels/pixel_kernels.h"

// Compiles the loops for AVX2 and AVX-512; the best one of this processor is taken at run time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "data_loader/kernels/pixel_kernels_targets.h"
#include "hwy/foreach_target.h"
// The build's own instruction set comes last:
#include "data_loader/kernels/pixel_kernels_targets.h"

namespace lockstep::pixel_kernels {

HWY_EXPORT(ResampleColumns);
HWY_EXPORT(ResampleRows);
HWY_EXPORT(Normalise);

void resample_columns(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    HWY_DYNAMIC_DISPATCH(ResampleColumns)(in, axis, out);
}
void resample_rows(const ImageView& in, const ResampleAxis& axis, const ImageView& out) {
    HWY_DYNAMIC_DISPATCH(ResampleRows)(in, axis, out);
}
void normalise(const ImageView& image, const Normalisation& how, bool mirrored, float* out) {
    HWY_DYNAMIC_DISPATCH(Normalise)(image, how, mirrored, out);
}

}  // namespace lockstep::pixel_kernels
