// The vector loops of pointwise_tiles.cc. Included once for each instruction set by Highway's foreach_target.h, so without a guard.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/error.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "nn/onednn/kernels/pointwise_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::onednn::pointwise::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of exactly kBlock lanes, one per pixel of a block of channels.
template <size_t kBlock>
using Tag = hn::CappedTag<float, kBlock>;
constexpr size_t kLanes = HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR ? 0 : hn::MaxLanes(hn::CappedTag<float, 16>());
constexpr bool kUsable = kLanes >= 8;
// A register block: pixels by blocks of columns. Its sums, a vector of each block of columns and one of a pixel fill the registers.
// Four pixels by three blocks were slower by 8 %.
constexpr int kRows = kLanes >= 16 ? 12 : 6;
constexpr int kColumns = 2;
constexpr int64_t kLine = 16;  // floats that a prefetch brings

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

// Register blocks one behind the other: the same columns of more and more pixels.
struct Strip {
    int64_t pixel = 0, blocks = 0;  // its first pixel, and how many register blocks
    int64_t column_block = 0;       // its first block of columns
    int64_t order = 0;              // of its first register block among those of the same columns
};

// `addend`: of the strip's first column, or null. `places`: of the block's pixels.
template <size_t kBlock, int kHeight, int kWidth, class V>
HWY_INLINE void FinishSums(const Product& job, int64_t column_block, const float* addend, const int64_t* places,
                           V (&sum)[kHeight][kWidth]) {
    const Tag<kBlock> d;
    const Finish& finish = job.finish;
    if (finish.scale != nullptr || finish.bias != nullptr) {
#pragma GCC unroll 4
        for (int column = 0; column < kWidth; ++column) {
            const int64_t channel = (column_block + column) * static_cast<int64_t>(kBlock);
            const V scale = finish.scale == nullptr ? hn::Set(d, 1.0F) : hn::LoadU(d, finish.scale + channel);
            const V bias = finish.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, finish.bias + channel);
#pragma GCC unroll 16
            for (int row = 0; row < kHeight; ++row) sum[row][column] = hn::MulAdd(sum[row][column], scale, bias);
        }
    }
    const V zero = hn::Zero(d);
#pragma GCC unroll 16
    for (int row = 0; row < kHeight; ++row) {
#pragma GCC unroll 4
        for (int column = 0; column < kWidth; ++column) {
            V& value = sum[row][column];
            if (addend != nullptr) value = hn::Add(value, hn::LoadU(d, addend + places[row] + column * job.result_stride));
            if (finish.relu) value = hn::IfThenElse(hn::Lt(value, zero), zero, value);  // a NaN must not be hidden
        }
    }
}

// While a register block is computed, what later ones read comes to the caches: the pixels two blocks on, whose channels lie too
// far apart for the processor's own prefetching, and a share of the next columns' weights.
template <size_t kBlock, int kHeight, int kWidth>
HWY_NOINLINE void MultiplyStrip(const Product& job, const Strip& strip) {
    const Tag<kBlock> d;
    using V = hn::Vec<Tag<kBlock>>;
    constexpr auto kStep = static_cast<int64_t>(kBlock);
    constexpr int64_t kLines = kStep * kStep / kLine;                               // of a block of weights
    constexpr int kPixels = static_cast<int>(std::max<int64_t>(1, kLine / kStep));  // in a line
    const int64_t result_stride = job.result_stride, right_stride = job.right_stride, left_stride = job.left_stride;
    float* const result = job.result + strip.column_block * result_stride;
    const float* const addend = job.finish.addend == nullptr ? nullptr : job.finish.addend + strip.column_block * result_stride;
    const int64_t depth_floats = job.depth_blocks * left_stride;
    for (int64_t index = 0; index < strip.blocks; ++index) {
        const int64_t pixel = strip.pixel + index * kHeight;
        const int64_t* const places = job.result_places + pixel;
        V sum[kHeight][kWidth];
#pragma GCC unroll 16
        for (int row = 0; row < kHeight; ++row) {
#pragma GCC unroll 4
            for (int column = 0; column < kWidth; ++column) {
                sum[row][column] = job.onto ? hn::LoadU(d, result + places[row] + column * result_stride) : hn::Zero(d);
            }
        }
        const float* HWY_RESTRICT left[kHeight];
        const float* ahead[(kHeight + kPixels - 1) / kPixels];
#pragma GCC unroll 16
        for (int row = 0; row < kHeight; ++row) {
            left[row] = job.left + job.left_places[pixel + row];
            if (row % kPixels != 0) continue;
            const int64_t later = std::min(job.pixels - 1, pixel + 2 * kHeight + row);
            ahead[row / kPixels] = job.left + job.left_places[later];
            if (!job.complete) continue;
            const float* const place = result + job.result_places[later];
#pragma GCC unroll 4
            for (int column = 0; column < kWidth; ++column) {
                hwy::Prefetch(place + column * result_stride);
                if (addend != nullptr) hwy::Prefetch(addend + job.result_places[later] + column * result_stride);
            }
        }
        const float* right = job.right + strip.column_block * right_stride;
        const int64_t line = strip.order + index;
        const int64_t right_ahead =
            line < kWidth * kLines ? (kWidth + line / kLines) * right_stride + line % kLines * kLine : int64_t{0};
        for (int64_t at = 0; at < depth_floats; at += left_stride, right += kBlock * kBlock) {
            hwy::Prefetch(right + right_ahead);
#pragma GCC unroll 16
            for (const float* pixels : ahead) hwy::Prefetch(pixels + at);
#pragma GCC unroll 4
            for (size_t lane = 0; lane < kBlock; ++lane) {
                V columns[kWidth];
#pragma GCC unroll 4
                for (int column = 0; column < kWidth; ++column) {
                    columns[column] = hn::LoadU(d, right + column * right_stride + lane * kBlock);
                }
#pragma GCC unroll 16
                for (int row = 0; row < kHeight; ++row) {
                    const V value = hn::Set(d, left[row][at + static_cast<int64_t>(lane)]);
#pragma GCC unroll 4
                    for (int column = 0; column < kWidth; ++column) {
                        sum[row][column] = hn::MulAdd(value, columns[column], sum[row][column]);
                    }
                }
            }
        }
        if (job.complete) FinishSums<kBlock, kHeight, kWidth>(job, strip.column_block, addend, places, sum);
#pragma GCC unroll 16
        for (int row = 0; row < kHeight; ++row) {
#pragma GCC unroll 4
            for (int column = 0; column < kWidth; ++column) {
                hn::StoreU(sum[row][column], d, result + places[row] + column * result_stride);
            }
        }
    }
}

using MultiplyFunction = void (*)(const Product&, const Strip&);

// By height and width, each from 1.
template <size_t kBlock, size_t... kIndex>
constexpr auto MultiplyFunctions(std::index_sequence<kIndex...>) {
    return std::array<MultiplyFunction, sizeof...(kIndex)>{
        &MultiplyStrip<kBlock, static_cast<int>(kIndex) / kColumns + 1, static_cast<int>(kIndex) % kColumns + 1>...};
}

// Register blocks of two heights that differ by one: none is so low that its sums would wait for each other, unless all are.
template <size_t kBlock>
HWY_NOINLINE void MultiplyOf(const Product& job) {
    static constexpr auto kFunctions = MultiplyFunctions<kBlock>(std::make_index_sequence<kRows * kColumns>());
    const int64_t blocks = (job.pixels + kRows - 1) / kRows;
    const int64_t low = job.pixels / blocks, high_blocks = job.pixels % blocks;
    for (int64_t column = 0; column < job.column_blocks; column += kColumns) {
        const int64_t width = std::min<int64_t>(kColumns, job.column_blocks - column);
        const auto multiply = [&](int64_t height, const Strip& strip) {
            kFunctions[static_cast<size_t>((height - 1) * kColumns + width - 1)](job, strip);
        };
        if (high_blocks > 0) multiply(low + 1, {.pixel = 0, .blocks = high_blocks, .column_block = column});
        multiply(low,
                 {.pixel = high_blocks * (low + 1), .blocks = blocks - high_blocks, .column_block = column, .order = high_blocks});
    }
}

// --- what pointwise_tiles.cc exports

int64_t LaneCount() { return static_cast<int64_t>(kUsable ? kLanes : 0); }
int64_t ProductRows() { return kRows; }

void MultiplyPixels(const Product& product) {
    WithBlock(product.block, [&]<size_t kBlock>() { MultiplyOf<kBlock>(product); });
}

}  // namespace lockstep::onednn::pointwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
