// The vector loops of winograd_tiles.cc. Included once for each instruction set by Highway's foreach_target.h, so without a guard.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "hwy/highway.h"
#include "nn/onednn/kernels/winograd_blocks_targets.h"
#include "nn/onednn/kernels/winograd_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::onednn::winograd::HWY_NAMESPACE {

// work.template operator()<kBlock, kKernel>() for the block and the kernel of a job.
template <class Work>
HWY_INLINE void WithForm(int64_t block, int64_t kernel, const Work& work) {
    check(kernel == 3 || kernel == 5, "kernels of 3 or 5");
    WithBlock(block, [&]<size_t kBlock>() {
        kernel == 3 ? work.template operator()<kBlock, 3>() : work.template operator()<kBlock, 5>();
    });
}
constexpr int ReachOf(int kernel) { return static_cast<int>(reach_of(kernel)); }

// --- the transforms along one axis: in[] -> out[]

template <class D, class V = hn::Vec<D>>
HWY_INLINE void SourceAxis(D d, const V (&in)[6], V (&out)[6]) {
    const V four = hn::Set(d, 4.0F), five = hn::Set(d, 5.0F);
    const V even = hn::NegMulAdd(four, in[2], in[4]), odd = hn::NegMulAdd(four, in[1], in[3]);
    const V far_even = hn::Sub(in[4], in[2]);
    V far_odd = hn::Sub(in[3], in[1]);
    far_odd = hn::Add(far_odd, far_odd);
    out[0] = hn::NegMulAdd(five, in[2], hn::MulAdd(four, in[0], in[4]));
    out[1] = hn::Add(even, odd);
    out[2] = hn::Sub(even, odd);
    out[3] = hn::Add(far_even, far_odd);
    out[4] = hn::Sub(far_even, far_odd);
    out[5] = hn::NegMulAdd(five, in[3], hn::MulAdd(four, in[1], in[5]));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void ResultAxis(D d, const V (&in)[6], V (&out)[4]) {
    const V sum = hn::Add(in[1], in[2]), difference = hn::Sub(in[1], in[2]);
    const V far_sum = hn::Add(in[3], in[4]), far_difference = hn::Sub(in[3], in[4]);
    out[0] = hn::Add(in[0], hn::Add(sum, far_sum));
    out[1] = hn::MulAdd(hn::Set(d, 2.0F), far_difference, difference);
    out[2] = hn::MulAdd(hn::Set(d, 4.0F), far_sum, sum);
    out[3] = hn::Add(in[5], hn::MulAdd(hn::Set(d, 8.0F), far_difference, difference));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void GradientAxis(D d, const V (&in)[4], V (&out)[6]) {
    const V four = hn::Set(d, 4.0F);
    const V even = hn::Add(in[0], in[2]), odd = hn::Add(in[1], in[3]);
    const V far_even = hn::MulAdd(four, in[2], in[0]);
    V far_odd = hn::MulAdd(four, in[3], in[1]);
    far_odd = hn::Add(far_odd, far_odd);
    out[0] = in[0];
    out[1] = hn::Add(even, odd);
    out[2] = hn::Sub(even, odd);
    out[3] = hn::Add(far_even, far_odd);
    out[4] = hn::Sub(far_even, far_odd);
    out[5] = in[3];
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void WeightAxis(D d, const V (&in)[3], V (&out)[6]) {
    const V sixth = hn::Set(d, -1.0F / 6.0F), twelfth = hn::Set(d, 1.0F / 12.0F);
    const V outer = hn::Add(in[0], in[2]);
    const V far_outer = hn::MulAdd(hn::Set(d, 1.0F / 24.0F), in[0], hn::Mul(hn::Set(d, 1.0F / 6.0F), in[2]));
    const V far_inner = hn::Mul(twelfth, in[1]);
    out[0] = hn::Mul(hn::Set(d, 0.25F), in[0]);
    out[1] = hn::Mul(sixth, hn::Add(outer, in[1]));
    out[2] = hn::Mul(sixth, hn::Sub(outer, in[1]));
    out[3] = hn::Add(far_outer, far_inner);
    out[4] = hn::Sub(far_outer, far_inner);
    out[5] = in[2];
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void WeightGradientAxis(D d, const V (&in)[6], V (&out)[3]) {
    const V sixth = hn::Set(d, 1.0F / 6.0F);
    const V sum = hn::Mul(sixth, hn::Add(in[1], in[2])), difference = hn::Mul(sixth, hn::Sub(in[1], in[2]));
    const V far_sum = hn::Mul(sixth, hn::Add(in[3], in[4])), far_difference = hn::Mul(sixth, hn::Sub(in[3], in[4]));
    const V quarter = hn::Set(d, 0.25F);
    out[0] = hn::Sub(hn::Mul(quarter, hn::Add(in[0], far_sum)), sum);
    out[1] = hn::MulSub(hn::Set(d, 0.5F), far_difference, difference);
    out[2] = hn::Add(in[5], hn::Sub(far_sum, sum));
}

// The same with the points 0, 1, -1, 2, -2, 1/2, -1/2, infinity, for kernels of 5.

template <class D, class V = hn::Vec<D>>
HWY_INLINE void SourceAxis(D d, const V (&in)[8], V (&out)[8]) {
    const auto times = [d](float factor, V value) HWY_ATTR { return hn::Mul(hn::Set(d, factor), value); };
    const auto plus = [d](float factor, V value, V sum) HWY_ATTR { return hn::MulAdd(hn::Set(d, factor), value, sum); };
    out[0] = plus(5.25F, hn::Sub(in[4], in[2]), hn::Sub(in[0], in[6]));
    out[7] = plus(5.25F, hn::Sub(in[3], in[5]), hn::Sub(in[7], in[1]));
    const V even = plus(-4.25F, in[4], hn::Add(in[2], in[6])), odd = plus(-4.25F, in[3], hn::Add(in[1], in[5]));
    out[1] = hn::Add(even, odd);
    out[2] = hn::Sub(even, odd);
    const V far_even = plus(-1.25F, in[4], plus(0.25F, in[2], in[6]));
    const V far_odd = plus(0.5F, in[1], plus(-2.5F, in[3], times(2.0F, in[5])));
    out[3] = hn::Add(far_even, far_odd);
    out[4] = hn::Sub(far_even, far_odd);
    const V near_even = plus(-5.0F, in[4], plus(4.0F, in[2], in[6]));
    const V near_odd = plus(2.0F, in[1], plus(-2.5F, in[3], times(0.5F, in[5])));
    out[5] = hn::Add(near_even, near_odd);
    out[6] = hn::Sub(near_even, near_odd);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void ResultAxis(D d, const V (&in)[8], V (&out)[4]) {
    const auto plus = [d](float factor, V value, V sum) HWY_ATTR { return hn::MulAdd(hn::Set(d, factor), value, sum); };
    const V sum = hn::Add(in[1], in[2]), difference = hn::Sub(in[1], in[2]);
    const V far_sum = hn::Add(in[3], in[4]), far_difference = hn::Sub(in[3], in[4]);
    const V near_sum = hn::Add(in[5], in[6]), near_difference = hn::Sub(in[5], in[6]);
    out[0] = hn::Add(hn::Add(in[0], sum), hn::Add(far_sum, near_sum));
    out[1] = plus(0.5F, near_difference, plus(2.0F, far_difference, difference));
    out[2] = plus(0.25F, near_sum, plus(4.0F, far_sum, sum));
    out[3] = plus(0.125F, near_difference, plus(8.0F, far_difference, hn::Add(difference, in[7])));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void GradientAxis(D d, const V (&in)[4], V (&out)[8]) {
    const auto plus = [d](float factor, V value, V sum) HWY_ATTR { return hn::MulAdd(hn::Set(d, factor), value, sum); };
    const V even = hn::Add(in[0], in[2]), odd = hn::Add(in[1], in[3]);
    const V far_even = plus(4.0F, in[2], in[0]), far_odd = hn::Mul(hn::Set(d, 2.0F), plus(4.0F, in[3], in[1]));
    const V near_even = plus(0.25F, in[2], in[0]), near_odd = hn::Mul(hn::Set(d, 0.5F), plus(0.25F, in[3], in[1]));
    out[0] = in[0];
    out[1] = hn::Add(even, odd);
    out[2] = hn::Sub(even, odd);
    out[3] = hn::Add(far_even, far_odd);
    out[4] = hn::Sub(far_even, far_odd);
    out[5] = hn::Add(near_even, near_odd);
    out[6] = hn::Sub(near_even, near_odd);
    out[7] = in[3];
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void WeightAxis(D d, const V (&in)[5], V (&out)[8]) {
    const auto times = [d](float factor, V value) HWY_ATTR { return hn::Mul(hn::Set(d, factor), value); };
    const auto plus = [d](float factor, V value, V sum) HWY_ATTR { return hn::MulAdd(hn::Set(d, factor), value, sum); };
    const V even = times(-2.0F / 9.0F, hn::Add(hn::Add(in[0], in[2]), in[4])), odd = times(-2.0F / 9.0F, hn::Add(in[1], in[3]));
    const V far_even = times(1.0F / 90.0F, plus(16.0F, in[4], plus(4.0F, in[2], in[0])));
    const V far_odd = times(1.0F / 45.0F, plus(4.0F, in[3], in[1]));
    const V near_even = times(32.0F / 45.0F, plus(1.0F / 16.0F, in[4], plus(0.25F, in[2], in[0])));
    const V near_odd = times(16.0F / 45.0F, plus(0.25F, in[3], in[1]));
    out[0] = in[0];
    out[1] = hn::Add(even, odd);
    out[2] = hn::Sub(even, odd);
    out[3] = hn::Add(far_even, far_odd);
    out[4] = hn::Sub(far_even, far_odd);
    out[5] = hn::Add(near_even, near_odd);
    out[6] = hn::Sub(near_even, near_odd);
    out[7] = in[4];
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void WeightGradientAxis(D d, const V (&in)[8], V (&out)[5]) {
    const auto times = [d](float factor, V value) HWY_ATTR { return hn::Mul(hn::Set(d, factor), value); };
    const auto plus = [d](float factor, V value, V sum) HWY_ATTR { return hn::MulAdd(hn::Set(d, factor), value, sum); };
    const V sum = times(-2.0F / 9.0F, hn::Add(in[1], in[2])), difference = times(-2.0F / 9.0F, hn::Sub(in[1], in[2]));
    const V far_sum = times(1.0F / 90.0F, hn::Add(in[3], in[4])), far_difference = times(1.0F / 90.0F, hn::Sub(in[3], in[4]));
    const V near_sum = times(32.0F / 45.0F, hn::Add(in[5], in[6])), near_difference = times(32.0F / 45.0F, hn::Sub(in[5], in[6]));
    out[0] = hn::Add(hn::Add(in[0], sum), hn::Add(far_sum, near_sum));
    out[1] = plus(0.5F, near_difference, plus(2.0F, far_difference, difference));
    out[2] = plus(0.25F, near_sum, plus(4.0F, far_sum, sum));
    out[3] = plus(0.125F, near_difference, plus(8.0F, far_difference, difference));
    out[4] = hn::Add(in[7], plus(1.0F / 16.0F, near_sum, plus(16.0F, far_sum, sum)));
}

// Both axes of a kFrom x kFrom square of vectors, through the first-level cache. load(row, column), store(row, column, vector).
template <int kFrom, int kTo, class D, class Axis, class Load, class Store>
HWY_INLINE void Transform(D d, const Axis& axis, const Load& load, const Store& store) {
    using V = hn::Vec<D>;
    HWY_ALIGN float middle[kFrom * kTo * hn::MaxLanes(D())];
    for (int row = 0; row < kFrom; ++row) {
        V in[kFrom], out[kTo];
#pragma GCC unroll 8
        for (int column = 0; column < kFrom; ++column) in[column] = load(row, column);
        axis(in, out);
#pragma GCC unroll 8
        for (int column = 0; column < kTo; ++column) hn::Store(out[column], d, middle + (row * kTo + column) * hn::MaxLanes(d));
    }
    for (int column = 0; column < kTo; ++column) {
        V in[kFrom], out[kTo];
#pragma GCC unroll 8
        for (int row = 0; row < kFrom; ++row) in[row] = hn::Load(d, middle + (row * kTo + column) * hn::MaxLanes(d));
        axis(in, out);
#pragma GCC unroll 8
        for (int row = 0; row < kTo; ++row) store(row, column, out[row]);
    }
}

// --- tiles

// Walks over the tiles of a job: work(index of tile in the job, first element of its image's block, row, column of its corner).
template <class Work>
HWY_INLINE void ForEachTile(const Tiles& job, const Work& work) {
    const Grid& grid = job.grid;
    const int64_t plane = grid.height * grid.width * job.block;
    int64_t column = job.first % grid.tile_columns;
    int64_t row = job.first / grid.tile_columns % grid.tile_rows;
    int64_t image = job.first / grid.tile_columns / grid.tile_rows;
    for (int64_t tile = 0; tile < job.count; ++tile) {
        float* data = job.data + (image * grid.channel_blocks + job.channel_block) * plane;
        work(tile, data, row * kTile - grid.pad, column * kTile - grid.pad);
        if (++column < grid.tile_columns) continue;
        column = 0;
        if (++row < grid.tile_rows) continue;
        row = 0;
        ++image;
    }
}

// A kSide x kSide square of pixels with zeros for those outside the image.
template <size_t kBlock, int kSide>
HWY_NOINLINE void CopyWithin(const Grid& grid, const float* data, int64_t row, int64_t column, float* square) {
    std::memset(square, 0, sizeof(float) * kSide * kSide * kBlock);
    const int64_t left = std::max<int64_t>(0, -column), right = std::min<int64_t>(kSide, grid.width - column);
    if (right <= left) return;
    for (int64_t y = std::max<int64_t>(0, -row); y < std::min<int64_t>(kSide, grid.height - row); ++y) {
        std::memcpy(square + (y * kSide + left) * static_cast<int64_t>(kBlock),
                    data + ((row + y) * grid.width + column + left) * static_cast<int64_t>(kBlock),
                    sizeof(float) * kBlock * static_cast<size_t>(right - left));
    }
}

template <size_t kBlock, int kSide, int kReach, class Axis>
HWY_NOINLINE void ToPoints(const Tiles& job, const Axis& axis) {
    const Tag<kBlock> d;
    constexpr auto kStep = static_cast<int64_t>(kBlock);
    const Grid& grid = job.grid;
    HWY_ALIGN float square[kSide * kSide * kBlock];
    ForEachTile(job, [&](int64_t tile, const float* data, int64_t row, int64_t column) HWY_ATTR {
        const bool inside = row >= 0 && column >= 0 && row + kSide <= grid.height && column + kSide <= grid.width;
        const float* from = square;
        int64_t stride = kSide * kStep;
        if (inside) {
            from = data + (row * grid.width + column) * kStep;
            stride = grid.width * kStep;
        } else {
            CopyWithin<kBlock, kSide>(grid, data, row, column, square);
        }
        float* const points = job.points + tile * kStep;
        Transform<kSide, kReach>(
            d, axis, [&](int y, int x) HWY_ATTR { return hn::LoadU(d, from + y * stride + x * kStep); },
            [&](int y, int x, auto value) HWY_ATTR { hn::StoreU(value, d, points + (y * kReach + x) * job.point_stride); });
    });
}

template <size_t kBlock, int kReach>
HWY_NOINLINE void PointsToResultOf(const Tiles& job, const Finish& finish) {
    const Tag<kBlock> d;
    constexpr auto kStep = static_cast<int64_t>(kBlock);
    const Grid& grid = job.grid;
    const auto scale = finish.scale == nullptr ? hn::Set(d, 1.0F) : hn::LoadU(d, finish.scale);
    const auto bias = finish.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, finish.bias);
    const auto zero = hn::Zero(d);
    const bool relu = finish.relu;
    HWY_ALIGN float square[kTile * kTile * kBlock];
    HWY_ALIGN float addend_square[kTile * kTile * kBlock];
    ForEachTile(job, [&](int64_t tile, float* data, int64_t row, int64_t column) HWY_ATTR {
        const bool inside = row + kTile <= grid.height && column + kTile <= grid.width;
        const int64_t corner = (row * grid.width + column) * kStep;
        float* to = inside ? data + corner : square;
        const int64_t stride = (inside ? grid.width : kTile) * kStep;
        const float* addend = finish.addend;
        if (addend != nullptr) {
            const float* const plane = addend + (data - job.data);
            addend = inside ? plane + corner : addend_square;
            if (!inside) CopyWithin<kBlock, kTile>(grid, plane, row, column, addend_square);
        }
        const float* const points = job.points + tile * kStep;
        Transform<kReach, kTile>(
            d, [&](const auto& in, auto& out) HWY_ATTR { ResultAxis(d, in, out); },
            [&](int y, int x) HWY_ATTR { return hn::LoadU(d, points + (y * kReach + x) * job.point_stride); },
            [&](int y, int x, auto value) HWY_ATTR {
                value = hn::MulAdd(value, scale, bias);
                if (addend != nullptr) value = hn::Add(value, hn::LoadU(d, addend + y * stride + x * kStep));
                if (relu) value = hn::IfThenElse(hn::Lt(value, zero), zero, value);  // a NaN must not be hidden
                hn::StoreU(value, d, to + y * stride + x * kStep);
            });
        if (inside) return;
        const int64_t width = std::min(kTile, grid.width - column);
        for (int64_t y = 0; y < std::min(kTile, grid.height - row); ++y) {
            std::memcpy(data + ((row + y) * grid.width + column) * kStep, square + y * stride,
                        sizeof(float) * kBlock * static_cast<size_t>(width));
        }
    });
}

// --- weights

template <size_t kBlock, int kKernel>
HWY_NOINLINE void WeightsToPointsOf(const WeightBlock& job, const float* weights) {
    constexpr int kReach = ReachOf(kKernel);
    const Tag<kBlock> d;
    for (size_t row = 0; row < kBlock; ++row) {
        const float* from = weights + row * kBlock;
        float* to = job.points + static_cast<int64_t>(row) * job.row_stride;
        Transform<kKernel, kReach>(
            d, [&](const auto& in, auto& out) HWY_ATTR { WeightAxis(d, in, out); },
            [&](int y, int x) HWY_ATTR { return hn::LoadU(d, from + static_cast<size_t>(y * kKernel + x) * kBlock * kBlock); },
            [&](int y, int x, auto value) HWY_ATTR { hn::StoreU(value, d, to + (y * kReach + x) * job.point_stride); });
    }
}

template <size_t kBlock, int kKernel>
HWY_NOINLINE void TurnedWeightsToPointsOf(const WeightBlock& job) {
    constexpr size_t kTaps = kKernel * kKernel;
    HWY_ALIGN float turned[kTaps * kBlock * kBlock];
    for (size_t tap = 0; tap < kTaps; ++tap) {
        const float* from = job.weights + tap * kBlock * kBlock;
        float* to = turned + (kTaps - 1 - tap) * kBlock * kBlock;
        for (size_t row = 0; row < kBlock; ++row) {
            for (size_t column = 0; column < kBlock; ++column) to[column * kBlock + row] = from[row * kBlock + column];
        }
    }
    WeightsToPointsOf<kBlock, kKernel>(job, turned);
}

template <size_t kBlock, int kKernel>
HWY_NOINLINE void PointsToWeightsOf(const WeightBlock& job, bool accumulate) {
    constexpr int kReach = ReachOf(kKernel);
    const Tag<kBlock> d;
    for (size_t row = 0; row < kBlock; ++row) {
        float* to = job.weights + row * kBlock;
        const float* from = job.points + static_cast<int64_t>(row) * job.row_stride;
        Transform<kReach, kKernel>(
            d, [&](const auto& in, auto& out) HWY_ATTR { WeightGradientAxis(d, in, out); },
            [&](int y, int x) HWY_ATTR { return hn::LoadU(d, from + (y * kReach + x) * job.point_stride); },
            [&](int y, int x, auto value) HWY_ATTR {
                float* place = to + static_cast<size_t>(y * kKernel + x) * kBlock * kBlock;
                hn::StoreU(accumulate ? hn::Add(value, hn::LoadU(d, place)) : value, d, place);
            });
    }
}

// --- what winograd_tiles.cc exports

int64_t LaneCount() { return static_cast<int64_t>(kUsable ? kLanes : 0); }

void SourceToPoints(const Tiles& tiles) {
    WithForm(tiles.block, tiles.kernel, [&]<size_t kBlock, int kKernel>() {
        ToPoints<kBlock, ReachOf(kKernel), ReachOf(kKernel)>(
            tiles, [](const auto& in, auto& out) HWY_ATTR { SourceAxis(Tag<kBlock>(), in, out); });
    });
}

void GradientToPoints(const Tiles& tiles) {
    WithForm(tiles.block, tiles.kernel, [&]<size_t kBlock, int kKernel>() {
        ToPoints<kBlock, kTile, ReachOf(kKernel)>(tiles,
                                                  [](const auto& in, auto& out) HWY_ATTR { GradientAxis(Tag<kBlock>(), in, out); });
    });
}

void PointsToResult(const Tiles& tiles, const Finish& finish) {
    WithForm(tiles.block, tiles.kernel,
             [&]<size_t kBlock, int kKernel>() { PointsToResultOf<kBlock, ReachOf(kKernel)>(tiles, finish); });
}

void WeightsToPoints(const WeightBlock& block) {
    WithForm(block.block, block.kernel,
             [&]<size_t kBlock, int kKernel>() { WeightsToPointsOf<kBlock, kKernel>(block, block.weights); });
}

void TurnedWeightsToPoints(const WeightBlock& block) {
    WithForm(block.block, block.kernel, [&]<size_t kBlock, int kKernel>() { TurnedWeightsToPointsOf<kBlock, kKernel>(block); });
}

void PointsToWeights(const WeightBlock& block, bool accumulate) {
    WithForm(block.block, block.kernel,
             [&]<size_t kBlock, int kKernel>() { PointsToWeightsOf<kBlock, kKernel>(block, accumulate); });
}

}  // namespace lockstep::onednn::winograd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
