// Which vectors the loops of Winograd's algorithm use. Included by each winograd_*_targets.h once for each instruction set, so
// without a guard.
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::onednn::winograd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of exactly kBlock lanes, one per pixel of a block of channels.
template <size_t kBlock>
using Tag = hn::CappedTag<float, kBlock>;
constexpr size_t kLanes = HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR ? 0 : hn::MaxLanes(hn::CappedTag<float, 16>());
constexpr bool kUsable = kLanes >= 8;

// work.template operator()<kBlock>() for the block of a job.
template <class Work>
HWY_INLINE void WithBlock(int64_t block, const Work& work) {
    check(kUsable && block <= static_cast<int64_t>(kLanes), "these loops are not for this processor or block");
    if constexpr (kLanes >= 16) {
        if (block == 16) return work.template operator()<16>();
    }
    if constexpr (kUsable) {
        check(block == 8, "blocks of 8 or 16 channels");
        work.template operator()<8>();
    }
}

}  // namespace lockstep::onednn::winograd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
