// Forward and the gradient of the source: each thread takes pieces of some tiles through all three stages by itself, so that their
// points stay in its caches; only the weights' points are made by all threads together before.
#include "nn/onednn/kernels/winograd.h"

#include <omp.h>

#include <algorithm>
#include <utility>

#include "core/hash.h"
#include "nn/onednn/kernels/parallel.h"
#include "nn/onednn/kernels/winograd_grids.h"

namespace lockstep::onednn {

using winograd::Convolution;
using winograd::divide_up;
using winograd::kApart;

namespace {

// Pieces of `tiles` tiles, as many for each thread as for the others, or of some of the columns of all tiles. Their size decides
// about time only.
struct Pieces {
    int64_t points = 0;  // of a tile
    int64_t tiles = 0, count = 0;
    int64_t column_parts = 1;
    int64_t weight_stride = 0, source_stride = 0, result_stride = 0;  // floats from one point to the next

    int64_t weight_floats() const { return points * weight_stride; }
    int64_t thread_floats() const { return points * (source_stride + result_stride); }
};

Pieces pieces_of(const Convolution& conv, int threads) {
    constexpr int64_t kFloats = 128 << 10;        // of points: as many as a usual second-level cache holds,
    constexpr int64_t kFewest = 72, kMost = 192;  // but enough tiles to be worth fetching the weights' points for
    const int64_t rows = winograd::product_rows();
    const int64_t wanted = std::clamp(kFloats / conv.points() / (conv.depth() + conv.columns()), kFewest, kMost);
    // Few tiles: too few to share out evenly, each by whole rows of registers.
    const bool share_columns = conv.tiles() <= kFewest && conv.to.channel_blocks >= 2 * threads;
    const int64_t parts = share_columns ? 1 : divide_up(conv.tiles(), wanted * threads) * threads;
    Pieces pieces;
    pieces.points = conv.points();
    pieces.tiles = divide_up(divide_up(conv.tiles(), parts), rows) * rows;
    pieces.count = divide_up(conv.tiles(), pieces.tiles);
    if (share_columns) pieces.column_parts = threads;
    pieces.weight_stride = conv.depth() * conv.columns() + kApart;
    pieces.source_stride = conv.depth() * pieces.tiles + kApart;
    pieces.result_stride = conv.columns() * pieces.tiles + kApart;
    return pieces;
}

struct Operands {
    const float* source;
    const float* weights;
    winograd::Finish finish;  // from the first channel on
    float* result;
    float* weight_points;
    float* scratch;  // each thread's
    WinogradKept* kept = nullptr;
};

// As panels of two blocks of columns.
void transform_weights(const Convolution& conv, const Pieces& pieces, const Operands& operands) {
    const int64_t block_floats = conv.taps() * conv.block * conv.block;
    const int64_t in_blocks = conv.turned ? conv.to.channel_blocks : conv.from.channel_blocks;
#pragma omp for schedule(static) collapse(2)
    for (int64_t column = 0; column < conv.to.channel_blocks; ++column) {
        for (int64_t depth = 0; depth < conv.from.channel_blocks; ++depth) {
            const int64_t out = conv.turned ? depth : column, in = conv.turned ? column : depth;
            const int64_t panel = column / 2 * 2;
            const int64_t panel_width = std::min<int64_t>(2, conv.to.channel_blocks - panel) * conv.block;
            const winograd::WeightBlock block{
                .kernel = conv.kernel,
                .block = conv.block,
                .weights = const_cast<float*>(operands.weights) + (out * in_blocks + in) * block_floats,  // only read
                .points = operands.weight_points + (panel * conv.depth() + column - panel) * conv.block +
                          depth * conv.block * panel_width,
                .point_stride = pieces.weight_stride,
                .row_stride = panel_width};
            conv.turned ? winograd::turned_weights_to_points(block) : winograd::weights_to_points(block);
        }
    }
}

void convolve_piece(const Convolution& conv, const Pieces& pieces, int64_t piece, int64_t part, const Operands& operands,
                    float* scratch) {
    const int64_t first = piece * pieces.tiles;
    const int64_t count = std::min(pieces.tiles, conv.tiles() - first);
    const int64_t rows = winograd::product_rows();
    const int64_t panels = divide_up(conv.to.channel_blocks, 2);  // of the weights' points
    const int64_t begin = 2 * (panels * part / pieces.column_parts);
    const int64_t end = std::min(conv.to.channel_blocks, 2 * (panels * (part + 1) / pieces.column_parts));
    float* const result_points = scratch + pieces.points * pieces.source_stride;
    winograd::Tiles tiles{.grid = conv.from, .kernel = conv.kernel, .block = conv.block, .first = first, .count = count};
    tiles.data = const_cast<float*>(operands.source);  // only read
    tiles.point_stride = pieces.source_stride;
    for (int64_t block = 0; block < conv.from.channel_blocks; ++block) {
        tiles.channel_block = block;
        tiles.points = scratch + block * pieces.tiles * conv.block;
        winograd::source_to_points(tiles);
    }
    for (int64_t point = 0; point < pieces.points; ++point) {
        winograd::multiply({.block = conv.block,
                            .tiles = divide_up(count, rows) * rows,  // what is left of an earlier piece gives results nobody reads
                            .tile_stride = pieces.tiles,
                            .depth_blocks = conv.from.channel_blocks,
                            .column_blocks = end - begin,
                            .left = scratch + point * pieces.source_stride,
                            .right = operands.weight_points + point * pieces.weight_stride + begin * conv.block * conv.depth(),
                            .result = result_points + point * pieces.result_stride + begin * pieces.tiles * conv.block});
    }
    tiles.grid = conv.to;
    tiles.data = operands.result;
    tiles.point_stride = pieces.result_stride;
    for (int64_t block = begin; block < end; ++block) {
        tiles.channel_block = block;
        tiles.points = result_points + block * pieces.tiles * conv.block;
        winograd::Finish finish = operands.finish;
        if (finish.scale != nullptr) finish.scale += block * conv.block;
        if (finish.bias != nullptr) finish.bias += block * conv.block;
        winograd::points_to_result(tiles, finish);
    }
}

void convolve(const Convolution& conv, const Operands& operands) {
    const int threads = omp_get_max_threads();
    const Pieces pieces = pieces_of(conv, threads);
    if (operands.kept != nullptr) operands.kept->begin_use();
    on_all_threads([&] {
        if (operands.kept == nullptr || operands.kept->are_others(operands.weights)) transform_weights(conv, pieces, operands);
        float* const own = operands.scratch + omp_get_thread_num() * pieces.thread_floats();
#pragma omp for schedule(static) collapse(2)
        for (int64_t piece = 0; piece < pieces.count; ++piece) {
            for (int64_t part = 0; part < pieces.column_parts; ++part) convolve_piece(conv, pieces, piece, part, operands, own);
        }
    });
}

int64_t weight_point_floats(const Convolution& conv) { return pieces_of(conv, 1).weight_floats(); }

size_t scratch_floats(const Convolution& conv, int threads, bool kept) {
    // Fewer threads may share out the work otherwise and need more.
    int64_t own = 0;
    for (int count = 1; count <= threads; ++count) own = std::max(own, count * pieces_of(conv, count).thread_floats());
    return static_cast<size_t>(own + (kept ? 0 : weight_point_floats(conv)));
}

}  // namespace

bool winograd_runs_here(int64_t block) { return (block == 8 || block == 16) && block <= winograd::lane_count(); }

WinogradKept::WinogradKept(const WinogradShape& shape)
    : weight_floats_(
          static_cast<size_t>(shape.kernel * shape.kernel * shape.in_blocks * shape.out_blocks * shape.block * shape.block)),
      points_(HeapPool().allocate(sizeof(float) * static_cast<size_t>(weight_point_floats(winograd::forward_of(shape))))) {}

bool WinogradKept::are_others(const float* weights) {
#pragma omp for schedule(static)
    for (int64_t piece = 0; piece < kPieces; ++piece) {
        const size_t begin = weight_floats_ * piece / kPieces, end = weight_floats_ * (piece + 1) / kPieces;
        const uint64_t hash = hash_bytes(weights + begin, (end - begin) * sizeof(float));
        if (std::exchange(hashes_[piece], hash) != hash) changed_ = true;
    }
    return changed_;
}

bool winograd_should_keep(const WinogradShape& shape) {
    constexpr int64_t kMostTiles = 72;
    return winograd::forward_of(shape).tiles() <= kMostTiles;
}

size_t winograd_forward_scratch(const WinogradShape& shape, int threads, bool kept) {
    return scratch_floats(winograd::forward_of(shape), threads, kept);
}

size_t winograd_source_gradient_scratch(const WinogradShape& shape, int threads) {
    return scratch_floats(winograd::source_gradient_of(shape), threads, false);
}

void winograd_forward(const WinogradShape& shape, const WinogradForward& forward) {
    const Convolution conv = winograd::forward_of(shape);
    convolve(conv, {.source = forward.source,
                    .weights = forward.weights,
                    .finish = {.scale = forward.scale, .bias = forward.bias, .addend = forward.addend, .relu = forward.relu},
                    .result = forward.result,
                    .weight_points = forward.kept == nullptr ? forward.scratch : forward.kept->points(),
                    .scratch = forward.scratch + (forward.kept == nullptr ? weight_point_floats(conv) : 0),
                    .kept = forward.kept});
}

void winograd_source_gradient(const WinogradShape& shape, const WinogradSourceGradient& backward) {
    const Convolution conv = winograd::source_gradient_of(shape);
    convolve(conv, {.source = backward.result_gradient,
                    .weights = backward.weights,
                    .result = backward.source_gradient,
                    .weight_points = backward.scratch,
                    .scratch = backward.scratch + weight_point_floats(conv)});
}

}  // namespace lockstep::onednn
