#include "nn/onednn/kernels/winograd_tiles.h"

// Compiles the loops for AVX2 and AVX-512; the best one of this processor is taken at run time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_TARGET_INCLUDE "nn/onednn/kernels/winograd_tiles_targets.h"
#include "hwy/foreach_target.h"
// The build's own instruction set comes last:
#include "nn/onednn/kernels/winograd_tiles_targets.h"

namespace lockstep::onednn::winograd {

HWY_EXPORT(LaneCount);
HWY_EXPORT(SourceToPoints);
HWY_EXPORT(GradientToPoints);
HWY_EXPORT(PointsToResult);
HWY_EXPORT(WeightsToPoints);
HWY_EXPORT(TurnedWeightsToPoints);
HWY_EXPORT(PointsToWeights);

int64_t lane_count() { return HWY_DYNAMIC_DISPATCH(LaneCount)(); }
void source_to_points(const Tiles& tiles) { HWY_DYNAMIC_DISPATCH(SourceToPoints)(tiles); }
void gradient_to_points(const Tiles& tiles) { HWY_DYNAMIC_DISPATCH(GradientToPoints)(tiles); }
void points_to_result(const Tiles& tiles, const Finish& finish) { HWY_DYNAMIC_DISPATCH(PointsToResult)(tiles, finish); }
void weights_to_points(const WeightBlock& block) { HWY_DYNAMIC_DISPATCH(WeightsToPoints)(block); }
void turned_weights_to_points(const WeightBlock& block) { HWY_DYNAMIC_DISPATCH(TurnedWeightsToPoints)(block); }
void points_to_weights(const WeightBlock& block, bool accumulate) { HWY_DYNAMIC_DISPATCH(PointsToWeights)(block, accumulate); }

}  // namespace lockstep::onednn::winograd
