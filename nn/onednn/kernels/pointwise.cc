// Each thread computes some of the pixels, of all images, in some of the output channels, tile by tile. A tile's sums are made in
// rounds, over as many input channels as let the weights of two blocks of columns stay in the first-level cache while all the
// tile's pixels, which stay in the second-level cache, pass by.
#include "nn/onednn/kernels/pointwise.h"

#include <omp.h>

#include <algorithm>
#include <array>

#include "nn/onednn/kernels/pointwise_tiles.h"

namespace lockstep::onednn {

namespace {

constexpr int64_t kMostPixels = 384;  // of a tile

constexpr int64_t divide_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

struct Range {
    int64_t begin = 0, end = 0;
    int64_t count() const { return end - begin; }
};

Range part_of(int64_t count, int64_t parts, int64_t index) { return {count * index / parts, count * (index + 1) / parts}; }

int64_t pixels_of(const PointwiseShape& shape) { return shape.images * shape.out_height() * shape.out_width(); }

// How threads share the work: each has one part of the pixels and one of the blocks of columns. The parts are those with the least
// time by count: of the products, and of what must be fetched for them.
struct Shares {
    int64_t pixel_parts = 1, column_parts = 1;
};

Shares shares_of(const PointwiseShape& shape, int threads) {
    constexpr double kProductsPerFetch = 8.0;
    const int64_t rows = pointwise::product_rows();
    Shares best;
    double least = 0.0;
    for (int64_t parts = 1; parts <= threads; ++parts) {
        if (threads % parts != 0) continue;
        const auto pixels = static_cast<double>(divide_up(divide_up(pixels_of(shape), rows), parts) * rows);
        const auto columns = static_cast<double>(divide_up(shape.out_blocks, threads / parts) * shape.block);
        const double time = pixels * columns + kProductsPerFetch * (pixels + columns);
        if (parts > 1 && time >= least) continue;
        least = time;
        best = {parts, threads / parts};
    }
    return best;
}

// Sizes decide about time only.
struct Tiling {
    int64_t depth_blocks = 0;  // of a round
    int64_t pixels = 0;        // of a tile
};

Tiling tiling_of(const PointwiseShape& shape, int64_t pixels) {
    constexpr int64_t kDepth = 384;
    constexpr int64_t kFloats = 24 << 10;  // of the source, a part of the smallest usual second-level cache
    constexpr int64_t kFewest = 48;
    Tiling tiling;
    tiling.depth_blocks = divide_up(shape.in_blocks, divide_up(shape.in_blocks * shape.block, kDepth));
    const int64_t lines = shape.stride > 1 ? 2 : 1;  // that a pixel takes up in the cache, for what lies between comes along
    const int64_t most = std::clamp(kFloats / lines / (tiling.depth_blocks * shape.block), kFewest, kMostPixels);
    tiling.pixels = divide_up(pixels, divide_up(pixels, most));
    return tiling;
}

// Of a tile's pixels in both tensors, at their first block of channels, in floats.
struct Places {
    std::array<int64_t, kMostPixels> source, result;
};

void find_places(const PointwiseShape& shape, Range pixels, Places& places) {
    const int64_t width = shape.out_width(), height = shape.out_height();
    int64_t x = pixels.begin % width, y = pixels.begin / width % height, image = pixels.begin / width / height;
    for (size_t index = 0; index < static_cast<size_t>(pixels.count()); ++index) {
        places.source[index] =
            ((image * shape.in_blocks * shape.height + y * shape.stride) * shape.width + x * shape.stride) * shape.block;
        places.result[index] = ((image * shape.out_blocks * height + y) * width + x) * shape.block;
        if (++x < width) continue;
        x = 0;
        if (++y < height) continue;
        y = 0;
        ++image;
    }
}

void convolve_tile(const PointwiseShape& shape, const PointwiseForward& forward, int64_t depth_blocks, Range pixels,
                   Range columns) {
    const int64_t out_plane = shape.out_height() * shape.out_width() * shape.block;
    const int64_t plane = shape.height * shape.width * shape.block;
    Places places;
    find_places(shape, pixels, places);
    const auto from_channel = [&](const float* values) {
        return values == nullptr ? nullptr : values + columns.begin * shape.block;
    };
    const int64_t weight_floats = shape.block * shape.block;
    pointwise::Product product{
        .block = shape.block,
        .pixels = pixels.count(),
        .column_blocks = columns.count(),
        .left_stride = plane,
        .left_places = places.source.data(),
        .right_stride = shape.in_blocks * weight_floats,
        .result = forward.result + columns.begin * out_plane,
        .result_stride = out_plane,
        .result_places = places.result.data(),
        .finish = {.scale = from_channel(forward.scale),
                   .bias = from_channel(forward.bias),
                   .addend = forward.addend == nullptr ? nullptr : forward.addend + columns.begin * out_plane,
                   .relu = forward.relu}};
    for (int64_t depth = 0; depth < shape.in_blocks; depth += depth_blocks) {
        product.depth_blocks = std::min(depth_blocks, shape.in_blocks - depth);
        product.left = forward.source + depth * plane;
        product.right = forward.weights + (columns.begin * shape.in_blocks + depth) * weight_floats;
        product.onto = depth > 0;
        product.complete = depth + product.depth_blocks == shape.in_blocks;
        pointwise::multiply(product);
    }
}

}  // namespace

bool pointwise_runs_here(int64_t block) { return (block == 8 || block == 16) && block <= pointwise::lane_count(); }

void pointwise_forward(const PointwiseShape& shape, const PointwiseForward& forward) {
    const int threads = omp_get_max_threads();
    const Shares shares = shares_of(shape, threads);
#pragma omp parallel num_threads(threads)
    {
        const int64_t thread = omp_get_thread_num();
        const Range pixels = part_of(pixels_of(shape), shares.pixel_parts, thread / shares.column_parts);
        const Range columns = part_of(shape.out_blocks, shares.column_parts, thread % shares.column_parts);
        if (pixels.count() > 0 && columns.count() > 0) {
            const Tiling tiling = tiling_of(shape, pixels.count());
            for (int64_t first = pixels.begin; first < pixels.end; first += tiling.pixels) {
                convolve_tile(shape, forward, tiling.depth_blocks, {first, std::min(first + tiling.pixels, pixels.end)}, columns);
            }
        }
    }
}

}  // namespace lockstep::onednn
