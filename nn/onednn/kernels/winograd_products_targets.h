// The vector loops of winograd_products.cc. Included once for each instruction set by Highway's foreach_target.h, so without a
// guard.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "nn/onednn/kernels/winograd_blocks_targets.h"
#include "nn/onednn/kernels/winograd_products.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::onednn::winograd::HWY_NAMESPACE {

constexpr int kRows = kLanes >= 16 ? 12 : 6;      // of a register block of multiply(): with two vectors, most of the registers
constexpr int kOuterRows = kLanes >= 16 ? 8 : 4;  // of multiply_outer(), with three vectors
constexpr int kOuterVectors = 3;

// A register block: kHeight tiles by kVectors blocks of columns, over the whole depth. Meanwhile its share of the columns behind
// comes to the caches, a third, so that memory is read evenly however few tiles there are: `turn` says which.
template <size_t kBlock, int kHeight, int kVectors>
HWY_NOINLINE void MultiplyBlock(const float* HWY_RESTRICT left, int64_t left_stride, const float* HWY_RESTRICT right,
                                int64_t depth_blocks, float* HWY_RESTRICT result, int64_t result_stride, int64_t turn) {
    constexpr int64_t kLine = 16, kTurns = 3;  // floats that a prefetch brings
    constexpr int64_t kLines = static_cast<int64_t>(kBlock * kBlock) * kVectors / kLine, kShare = (kLines + kTurns - 1) / kTurns;
    const int64_t ahead = depth_blocks * kLines * kLine + turn % kTurns * kShare * kLine;
    const Tag<kBlock> d;
    using V = hn::Vec<Tag<kBlock>>;
    V sum[kHeight][kVectors];
#pragma GCC unroll 16
    for (int row = 0; row < kHeight; ++row) {
#pragma GCC unroll 4
        for (int vector = 0; vector < kVectors; ++vector) sum[row][vector] = hn::Zero(d);
    }
    for (int64_t depth = 0; depth < depth_blocks; ++depth, left += left_stride) {
#pragma GCC unroll 16
        for (int64_t line = 0; line < kShare; ++line) hwy::Prefetch(right + ahead + line * kLine);
#pragma GCC unroll 4
        for (size_t lane = 0; lane < kBlock; ++lane, right += kVectors * kBlock) {
            V columns[kVectors];
#pragma GCC unroll 4
            for (int vector = 0; vector < kVectors; ++vector) columns[vector] = hn::LoadU(d, right + vector * kBlock);
#pragma GCC unroll 16
            for (int row = 0; row < kHeight; ++row) {
                const V value = hn::Set(d, left[row * kBlock + lane]);
#pragma GCC unroll 4
                for (int vector = 0; vector < kVectors; ++vector) {
                    sum[row][vector] = hn::MulAdd(value, columns[vector], sum[row][vector]);
                }
            }
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < kHeight; ++row) {
#pragma GCC unroll 4
        for (int vector = 0; vector < kVectors; ++vector) {
            hn::StoreU(sum[row][vector], d, result + vector * result_stride + row * kBlock);
        }
    }
}

template <size_t kBlock>
HWY_NOINLINE void MultiplyOf(const Product& job) {
    constexpr auto kStep = static_cast<int64_t>(kBlock);
    const int64_t stride = job.tile_stride * kStep;
    const int64_t depth = job.depth_blocks * kStep;
    for (int64_t column = 0; column < job.column_blocks; column += 2) {
        const float* right = job.right + column * depth * kStep;
        float* result = job.result + column * stride;
        for (int64_t tile = 0; tile < job.tiles; tile += kRows) {
            if (column + 1 < job.column_blocks) {
                MultiplyBlock<kBlock, kRows, 2>(job.left + tile * kStep, stride, right, job.depth_blocks, result + tile * kStep,
                                                stride, tile / kRows);
            } else {
                MultiplyBlock<kBlock, kRows, 1>(job.left + tile * kStep, stride, right, job.depth_blocks, result + tile * kStep,
                                                stride, tile / kRows);
            }
        }
    }
}

// A register block: kHeight rows by kVectors blocks of columns, over all tiles.
template <size_t kBlock, int kHeight, int kVectors>
HWY_NOINLINE void OuterBlock(const float* HWY_RESTRICT left, const float* HWY_RESTRICT right, int64_t right_stride, int64_t tiles,
                             float* HWY_RESTRICT result, int64_t result_stride, bool accumulate) {
    const Tag<kBlock> d;
    using V = hn::Vec<Tag<kBlock>>;
    V sum[kHeight][kVectors];
#pragma GCC unroll 16
    for (int row = 0; row < kHeight; ++row) {
#pragma GCC unroll 4
        for (int vector = 0; vector < kVectors; ++vector) {
            sum[row][vector] = accumulate ? hn::LoadU(d, result + row * result_stride + vector * kBlock) : hn::Zero(d);
        }
    }
#pragma GCC unroll 4
    for (int64_t tile = 0; tile < tiles; ++tile, left += kBlock, right += kBlock) {
        V columns[kVectors];
#pragma GCC unroll 4
        for (int vector = 0; vector < kVectors; ++vector) columns[vector] = hn::LoadU(d, right + vector * right_stride);
#pragma GCC unroll 16
        for (int row = 0; row < kHeight; ++row) {
            const V value = hn::Set(d, left[row]);
#pragma GCC unroll 4
            for (int vector = 0; vector < kVectors; ++vector) {
                sum[row][vector] = hn::MulAdd(value, columns[vector], sum[row][vector]);
            }
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < kHeight; ++row) {
#pragma GCC unroll 4
        for (int vector = 0; vector < kVectors; ++vector) {
            hn::StoreU(sum[row][vector], d, result + row * result_stride + vector * kBlock);
        }
    }
}

template <size_t kBlock>
HWY_NOINLINE void MultiplyOuterOf(const OuterProduct& job) {
    constexpr auto kStep = static_cast<int64_t>(kBlock);
    constexpr int kHeight = std::min<int>(kOuterRows, static_cast<int>(kBlock));
    const int64_t stride = job.tile_stride * kStep;
    const int64_t sum_stride = job.column_blocks * kStep;
    for (int64_t column = 0; column < job.column_blocks;) {
        // Threes, and twos where a one would be left.
        const int64_t left_over = job.column_blocks - column;
        const int64_t vectors = left_over == 4 || left_over == 2 ? 2 : std::min<int64_t>(left_over, kOuterVectors);
        const float* right = job.right + column * stride;
        for (int64_t row = job.row_block_begin * kStep; row < job.row_block_end * kStep; row += kHeight) {
            const float* left = job.left + row / kStep * stride + row % kStep;
            float* sum = job.sum + row * sum_stride + column * kStep;
            const auto block = vectors == 3   ? OuterBlock<kBlock, kHeight, 3>
                               : vectors == 2 ? OuterBlock<kBlock, kHeight, 2>
                                              : OuterBlock<kBlock, kHeight, 1>;
            block(left, right, stride, job.tiles, sum, sum_stride, job.accumulate);
        }
        column += vectors;
    }
}

// --- what winograd_products.cc exports

int64_t ProductRows() { return kRows; }

void MultiplyPoints(const Product& product) {
    WithBlock(product.block, [&]<size_t kBlock>() { MultiplyOf<kBlock>(product); });
}

void MultiplyOuter(const OuterProduct& product) {
    WithBlock(product.block, [&]<size_t kBlock>() { MultiplyOuterOf<kBlock>(product); });
}

}  // namespace lockstep::onednn::winograd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
