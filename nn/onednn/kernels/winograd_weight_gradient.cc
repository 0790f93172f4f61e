// The gradient of the weights, in rounds: all threads transform some tiles of the source and of the result's gradient, then share
// out the products of those, which add up over the rounds.
#include <omp.h>

#include <algorithm>

#include "nn/onednn/kernels/winograd_grids.h"

namespace lockstep::onednn {

using winograd::Convolution;
using winograd::divide_up;
using winograd::kApart;

namespace {

constexpr int64_t kChunk = 32;     // tiles transformed at a time
constexpr int64_t kRowBlocks = 8;  // of the products in one share

// (1, 1), the sum of a tile's pixels, since A's second row is all ones.
int64_t sum_point_of(const Convolution& conv) { return winograd::reach_of(conv.kernel) + 1; }

// Of a size that does not depend on threads, so that sums do not either.
struct Rounds {
    int64_t points = 0;  // of a tile
    int64_t tiles = 0, count = 0;
    int64_t source_stride = 0, gradient_stride = 0, sum_stride = 0;  // floats from one point to the next
    int64_t bias_sums = 0;                                           // in double

    int64_t point_floats() const { return points * (source_stride + gradient_stride + sum_stride); }
    int64_t floats() const { return point_floats() + 2 * bias_sums; }
};

Rounds rounds_of(const Convolution& conv) {
    constexpr int64_t kFloats = 1 << 20;           // of points: half of them stay in a usual third-level cache's share of a core,
    constexpr int64_t kFewest = 192, kMost = 512;  // but enough tiles to be worth fetching the sums for
    const int64_t wanted = std::clamp(kFloats / conv.points() / (conv.depth() + conv.columns()), kFewest, kMost);
    Rounds rounds;
    rounds.points = conv.points();
    rounds.count = divide_up(conv.tiles(), wanted);
    rounds.tiles = divide_up(conv.tiles(), rounds.count);
    rounds.source_stride = rounds.tiles * conv.depth() + kApart;
    rounds.gradient_stride = rounds.tiles * conv.columns() + kApart;
    rounds.sum_stride = conv.depth() * conv.columns() + kApart;
    rounds.bias_sums = conv.columns();
    return rounds;
}

// One call's memory and what it works on.
struct Work {
    explicit Work(const WinogradShape& shape, const WinogradWeightGradient& call)
        : backward(call),
          conv(winograd::forward_of(shape)),
          rounds(rounds_of(conv)),
          source(call.scratch),
          gradient(source + rounds.points * rounds.source_stride),
          sums(gradient + rounds.points * rounds.gradient_stride),
          bias_sums(reinterpret_cast<double*>(call.scratch + rounds.point_floats())) {}

    int64_t tiles_in(int64_t round) const { return std::min(rounds.tiles, conv.tiles() - round * rounds.tiles); }

    const WinogradWeightGradient& backward;
    const Convolution conv;
    const Rounds rounds;
    float* const source;    // [point][block][tile][channel]
    float* const gradient;  // likewise
    float* const sums;      // [point][in][out]
    double* const bias_sums;
};

void transform_tiles(const Work& work, int64_t round) {
    const Convolution& conv = work.conv;
    const Rounds& rounds = work.rounds;
    const int64_t count = work.tiles_in(round), in_blocks = conv.from.channel_blocks;
#pragma omp for schedule(static) collapse(2)
    for (int64_t block = 0; block < in_blocks + conv.to.channel_blocks; ++block) {
        for (int64_t chunk = 0; chunk < count; chunk += kChunk) {
            const bool is_source = block < in_blocks;
            const int64_t own = is_source ? block : block - in_blocks;
            winograd::Tiles tiles{.grid = is_source ? conv.from : conv.to,
                                  .kernel = conv.kernel,
                                  .block = conv.block,
                                  .channel_block = own,
                                  .first = round * rounds.tiles + chunk,
                                  .count = std::min(kChunk, count - chunk)};
            tiles.data = const_cast<float*>(is_source ? work.backward.source : work.backward.result_gradient);  // only read
            tiles.points = (is_source ? work.source : work.gradient) + (own * rounds.tiles + chunk) * conv.block;
            tiles.point_stride = is_source ? rounds.source_stride : rounds.gradient_stride;
            is_source ? winograd::source_to_points(tiles) : winograd::gradient_to_points(tiles);
        }
    }
}

void add_bias(const Work& work, int64_t round) {
    const Convolution& conv = work.conv;
    const Rounds& rounds = work.rounds;
    const int64_t count = work.tiles_in(round);
#pragma omp for schedule(static) nowait
    for (int64_t block = 0; block < conv.to.channel_blocks; ++block) {
        const float* points = work.gradient + sum_point_of(conv) * rounds.gradient_stride + block * rounds.tiles * conv.block;
        double* sums = work.bias_sums + block * conv.block;
        if (round == 0) std::fill_n(sums, conv.block, 0.0);
        for (int64_t tile = 0; tile < count; ++tile) {
            for (int64_t lane = 0; lane < conv.block; ++lane) sums[lane] += points[tile * conv.block + lane];
        }
    }
}

void add_products(const Work& work, int64_t round) {
    const Convolution& conv = work.conv;
    const Rounds& rounds = work.rounds;
    const int64_t in_blocks = conv.from.channel_blocks;
#pragma omp for schedule(static) collapse(2)
    for (int64_t point = 0; point < rounds.points; ++point) {
        for (int64_t row = 0; row < in_blocks; row += kRowBlocks) {
            winograd::multiply_outer({.block = conv.block,
                                      .tiles = work.tiles_in(round),
                                      .tile_stride = rounds.tiles,
                                      .row_block_begin = row,
                                      .row_block_end = std::min(in_blocks, row + kRowBlocks),
                                      .column_blocks = conv.to.channel_blocks,
                                      .left = work.source + point * rounds.source_stride,
                                      .right = work.gradient + point * rounds.gradient_stride,
                                      .sum = work.sums + point * rounds.sum_stride,
                                      .accumulate = round > 0});
        }
    }
}

void write_gradients(const Work& work) {
    const Convolution& conv = work.conv;
    const WinogradWeightGradient& backward = work.backward;
    if (backward.bias_gradient != nullptr) {
#pragma omp for schedule(static) nowait
        for (int64_t channel = 0; channel < work.rounds.bias_sums; ++channel) {
            float& place = backward.bias_gradient[channel];
            place = (backward.accumulate ? place : 0.0F) + static_cast<float>(work.bias_sums[channel]);
        }
    }
    const int64_t in_blocks = conv.from.channel_blocks;
#pragma omp for schedule(static) collapse(2)
    for (int64_t out = 0; out < conv.to.channel_blocks; ++out) {
        for (int64_t in = 0; in < in_blocks; ++in) {
            winograd::points_to_weights(
                {.kernel = conv.kernel,
                 .block = conv.block,
                 .weights = backward.weight_gradient + (out * in_blocks + in) * conv.taps() * conv.block * conv.block,
                 .points = work.sums + in * conv.block * conv.columns() + out * conv.block,
                 .point_stride = work.rounds.sum_stride,
                 .row_stride = conv.columns()},
                backward.accumulate);
        }
    }
}

}  // namespace

size_t winograd_weight_gradient_scratch(const WinogradShape& shape) {
    return static_cast<size_t>(rounds_of(winograd::forward_of(shape)).floats());
}

void winograd_weight_gradient(const WinogradShape& shape, const WinogradWeightGradient& backward) {
    const Work work(shape, backward);
#pragma omp parallel num_threads(omp_get_max_threads())
    {
        for (int64_t round = 0; round < work.rounds.count; ++round) {
            transform_tiles(work, round);
            if (backward.bias_gradient != nullptr) add_bias(work, round);
            add_products(work, round);
        }
        write_gradients(work);
    }
}

}  // namespace lockstep::onednn
