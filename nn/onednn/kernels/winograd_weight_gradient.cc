// The gradient of the weights, in one of two ways, by the convolution's size alone. Both go over the tiles in rounds, which
// transform some tiles of the source and of the result's gradient and add up their products.
//
// Few channels: the tiles are cut into a fixed number of shares, each with sums of its own, which one thread carries through all
// its rounds, so that no core reads what another has just written; the shares' sums are added up in their order in the end. Many
// channels, where sums of their own would be too much to add up: all threads together transform a round's tiles, then share out its
// products by points.
#include <omp.h>

#include <algorithm>
#include <bit>

#include "nn/onednn/kernels/parallel.h"
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

// Sizes do not depend on threads, so that sums do not either.
struct Rounds {
    int64_t points = 0;                                              // of a tile
    int64_t shares = 1;                                              // 1: all threads work on each round together
    int64_t tiles = 0;                                               // of a round
    int64_t source_stride = 0, gradient_stride = 0, sum_stride = 0;  // floats from one point to the next
    int64_t bias_sums = 0;                                           // in double

    int64_t tile_floats() const { return points * (source_stride + gradient_stride); }
    int64_t sum_floats() const { return points * sum_stride; }
    int64_t buffers(int threads) const { return shares == 1 ? 1 : threads; }  // for a round's points
    int64_t point_floats(int threads) const { return buffers(threads) * tile_floats() + shares * sum_floats(); }
    int64_t floats(int threads) const { return point_floats(threads) + shares * 2 * bias_sums; }
};

// As many as cost little to add up, a power of two, so that most numbers of threads get as many each; or 1.
int64_t shares_of(const Convolution& conv, int64_t sum_floats) {
    constexpr int64_t kFewestTiles = 64, kFewest = 8, kMost = 32;
    constexpr int64_t kFloats = 2 << 20;
    const int64_t shares = std::min({conv.tiles() / kFewestTiles, kFloats / sum_floats, kMost});
    return shares < kFewest ? 1 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(shares)));
}

Rounds rounds_of(const Convolution& conv) {
    Rounds rounds;
    rounds.points = conv.points();
    rounds.sum_stride = conv.depth() * conv.columns() + kApart;
    rounds.bias_sums = conv.columns();
    rounds.shares = shares_of(conv, rounds.sum_floats());
    // Of points: half of what stays in a usual third-level cache's share of a core, or in a second-level cache; but enough tiles to
    // be worth fetching the sums for.
    const int64_t floats = rounds.shares == 1 ? 1 << 20 : 1 << 16;
    const int64_t fewest = rounds.shares == 1 ? 192 : 48, most = 512;
    const int64_t wanted = std::clamp(floats / conv.points() / (conv.depth() + conv.columns()), fewest, most);
    const int64_t share_tiles = divide_up(conv.tiles(), rounds.shares);
    rounds.tiles = divide_up(share_tiles, divide_up(share_tiles, wanted));
    rounds.source_stride = rounds.tiles * conv.depth() + kApart;
    rounds.gradient_stride = rounds.tiles * conv.columns() + kApart;
    return rounds;
}

// One call's memory and what it works on.
struct Work {
    Work(const WinogradShape& shape, const WinogradWeightGradient& call, int threads)
        : backward(call),
          conv(winograd::forward_of(shape)),
          rounds(rounds_of(conv)),
          sums(call.scratch + rounds.buffers(threads) * rounds.tile_floats()),
          bias_sums(reinterpret_cast<double*>(call.scratch + rounds.point_floats(threads))) {}

    float* source(int64_t buffer) const { return backward.scratch + buffer * rounds.tile_floats(); }
    float* gradient(int64_t buffer) const { return source(buffer) + rounds.points * rounds.source_stride; }

    const WinogradWeightGradient& backward;
    const Convolution conv;
    const Rounds rounds;
    // A buffer for a round: of the source [point][block][tile][channel], of the gradient likewise.
    float* const sums;  // [share][point][in][out]
    double* const bias_sums;
};

// Some tiles of the tensors, their points' buffer and where their products go.
struct Round {
    int64_t first = 0, count = 0;  // tiles
    int64_t buffer = 0;
    int64_t share = 0;
    bool is_first = true;  // of its share
};

void transform(const Work& work, const Round& round, int64_t block, int64_t chunk, int64_t chunk_tiles) {
    const Convolution& conv = work.conv;
    const Rounds& rounds = work.rounds;
    const int64_t in_blocks = conv.from.channel_blocks;
    const bool is_source = block < in_blocks;
    const int64_t own = is_source ? block : block - in_blocks;
    winograd::Tiles tiles{.grid = is_source ? conv.from : conv.to,
                          .kernel = conv.kernel,
                          .block = conv.block,
                          .channel_block = own,
                          .first = round.first + chunk,
                          .count = std::min(chunk_tiles, round.count - chunk)};
    tiles.data = const_cast<float*>(is_source ? work.backward.source : work.backward.result_gradient);  // only read
    tiles.points =
        (is_source ? work.source(round.buffer) : work.gradient(round.buffer)) + (own * rounds.tiles + chunk) * conv.block;
    tiles.point_stride = is_source ? rounds.source_stride : rounds.gradient_stride;
    is_source ? winograd::source_to_points(tiles) : winograd::gradient_to_points(tiles);
}

void add_bias(const Work& work, const Round& round, int64_t block) {
    const Convolution& conv = work.conv;
    const Rounds& rounds = work.rounds;
    const float* points =
        work.gradient(round.buffer) + sum_point_of(conv) * rounds.gradient_stride + block * rounds.tiles * conv.block;
    double* sums = work.bias_sums + round.share * rounds.bias_sums + block * conv.block;
    if (round.is_first) std::fill_n(sums, conv.block, 0.0);
    for (int64_t tile = 0; tile < round.count; ++tile) {
        for (int64_t lane = 0; lane < conv.block; ++lane) sums[lane] += points[tile * conv.block + lane];
    }
}

void add_products(const Work& work, const Round& round, int64_t point, int64_t row, int64_t row_blocks) {
    const Rounds& rounds = work.rounds;
    winograd::multiply_outer({.block = work.conv.block,
                              .tiles = round.count,
                              .tile_stride = rounds.tiles,
                              .row_block_begin = row,
                              .row_block_end = std::min(work.conv.from.channel_blocks, row + row_blocks),
                              .column_blocks = work.conv.to.channel_blocks,
                              .left = work.source(round.buffer) + point * rounds.source_stride,
                              .right = work.gradient(round.buffer) + point * rounds.gradient_stride,
                              .sum = work.sums + round.share * rounds.sum_floats() + point * rounds.sum_stride,
                              .accumulate = !round.is_first});
}

void do_round_together(const Work& work, const Round& round) {
    const int64_t in_blocks = work.conv.from.channel_blocks, out_blocks = work.conv.to.channel_blocks;
#pragma omp for schedule(static) collapse(2)
    for (int64_t block = 0; block < in_blocks + out_blocks; ++block) {
        for (int64_t chunk = 0; chunk < round.count; chunk += kChunk) transform(work, round, block, chunk, kChunk);
    }
    if (work.backward.bias_gradient != nullptr) {
#pragma omp for schedule(static) nowait
        for (int64_t block = 0; block < out_blocks; ++block) add_bias(work, round, block);
    }
#pragma omp for schedule(static) collapse(2)
    for (int64_t point = 0; point < work.rounds.points; ++point) {
        for (int64_t row = 0; row < in_blocks; row += kRowBlocks) add_products(work, round, point, row, kRowBlocks);
    }
}

void do_round_alone(const Work& work, const Round& round) {
    const int64_t in_blocks = work.conv.from.channel_blocks, out_blocks = work.conv.to.channel_blocks;
    for (int64_t block = 0; block < in_blocks + out_blocks; ++block) transform(work, round, block, 0, round.count);
    if (work.backward.bias_gradient != nullptr) {
        for (int64_t block = 0; block < out_blocks; ++block) add_bias(work, round, block);
    }
    for (int64_t point = 0; point < work.rounds.points; ++point) add_products(work, round, point, 0, in_blocks);
}

// work(round) for all rounds of a share.
template <typename DoRound>
void for_each_round(const Work& work, int64_t share, int64_t buffer, const DoRound& do_round) {
    const int64_t begin = work.conv.tiles() * share / work.rounds.shares;
    const int64_t end = work.conv.tiles() * (share + 1) / work.rounds.shares;
    for (int64_t first = begin; first < end; first += work.rounds.tiles) {
        do_round(Round{.first = first,
                       .count = std::min(work.rounds.tiles, end - first),
                       .buffer = buffer,
                       .share = share,
                       .is_first = first == begin});
    }
}

// Onto those of the first share, in the shares' order.
void add_up_shares(const Work& work) {
    const Rounds& rounds = work.rounds;
#pragma omp for schedule(static)
    for (int64_t point = 0; point < rounds.points; ++point) {
        float* const sums = work.sums + point * rounds.sum_stride;
        for (int64_t share = 1; share < rounds.shares; ++share) {
            const float* const more = sums + share * rounds.sum_floats();
#pragma omp simd
            for (int64_t i = 0; i < rounds.sum_stride - kApart; ++i) sums[i] += more[i];
        }
    }
}

double bias_sum(const Work& work, int64_t channel) {
    double sum = 0.0;
    for (int64_t share = 0; share < work.rounds.shares; ++share) sum += work.bias_sums[share * work.rounds.bias_sums + channel];
    return sum;
}

void write_gradients(const Work& work) {
    const Convolution& conv = work.conv;
    const WinogradWeightGradient& backward = work.backward;
    if (backward.bias_gradient != nullptr) {
#pragma omp for schedule(static) nowait
        for (int64_t channel = 0; channel < work.rounds.bias_sums; ++channel) {
            float& place = backward.bias_gradient[channel];
            place = (backward.accumulate ? place : 0.0F) + static_cast<float>(bias_sum(work, channel));
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

size_t winograd_weight_gradient_scratch(const WinogradShape& shape, int threads) {
    return static_cast<size_t>(rounds_of(winograd::forward_of(shape)).floats(threads));
}

void winograd_weight_gradient(const WinogradShape& shape, const WinogradWeightGradient& backward) {
    const Work work(shape, backward, omp_get_max_threads());
    on_all_threads([&] {
        if (work.rounds.shares == 1) {
            for_each_round(work, 0, 0, [&](const Round& round) { do_round_together(work, round); });
        } else {
#pragma omp for schedule(static)
            for (int64_t share = 0; share < work.rounds.shares; ++share) {
                for_each_round(work, share, omp_get_thread_num(), [&](const Round& round) { do_round_alone(work, round); });
            }
            add_up_shares(work);
        }
        write_gradients(work);
    });
}

}  // namespace lockstep::onednn
