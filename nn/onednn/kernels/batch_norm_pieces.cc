#include "nn/onednn/kernels/batch_norm_pieces.h"

// Compiles the loops for AVX2 and AVX-512; the best one of this processor is taken at run time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "nn/onednn/kernels/batch_norm_pieces_targets.h"
#include "hwy/foreach_target.h"
// The build's own instruction set comes last:
#include "nn/onednn/kernels/batch_norm_pieces_targets.h"

namespace lockstep::onednn::norm_pieces {

HWY_EXPORT(Statistics);
HWY_EXPORT(Normalise);
HWY_EXPORT(Reduce);
HWY_EXPORT(Differentiate);

void statistics(const Piece& piece) { HWY_DYNAMIC_DISPATCH(Statistics)(piece); }
void normalise(const Piece& piece) { HWY_DYNAMIC_DISPATCH(Normalise)(piece); }
void reduce(const Piece& piece) { HWY_DYNAMIC_DISPATCH(Reduce)(piece); }
void differentiate(const Piece& piece) { HWY_DYNAMIC_DISPATCH(Differentiate)(piece); }

}  // namespace lockstep::onednn::norm_pieces
