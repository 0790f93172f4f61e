// Each thread computes some of the pixels, of all images, in some of the output channels, tile by tile. A tile's sums are made in
// rounds, over as many input channels as let the weights of two blocks of columns stay in the first-level cache while all the
// tile's pixels, which stay in the second-level cache, pass by. With a stride the pixels are brought together before.
#include "nn/onednn/kernels/pointwise.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <span>

#include "nn/onednn/kernels/parallel.h"
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

Tiling most_of(const PointwiseShape& shape) {
    constexpr int64_t kDepth = 384;
    constexpr int64_t kFloats = 24 << 10;  // of the source, a part of the smallest usual second-level cache
    constexpr int64_t kFewest = 48;
    const int64_t depth_blocks = divide_up(shape.in_blocks, divide_up(shape.in_blocks * shape.block, kDepth));
    return {depth_blocks, std::clamp(kFloats / (depth_blocks * shape.block), kFewest, kMostPixels)};
}

Tiling tiling_of(const PointwiseShape& shape, int64_t pixels) {
    const Tiling most = most_of(shape);
    return {most.depth_blocks, divide_up(pixels, divide_up(pixels, most.pixels))};
}

int64_t gathered_floats(const PointwiseShape& shape) {
    const Tiling most = most_of(shape);
    return shape.stride == 1 ? 0 : most.depth_blocks * shape.block * most.pixels;
}

// Of a tile's pixels in both tensors, at their first block of channels, in floats.
struct Places {
    std::array<int64_t, kMostPixels> source, gathered, result;
};

void find_places(const PointwiseShape& shape, Range pixels, Places& places) {
    const int64_t width = shape.out_width(), height = shape.out_height();
    int64_t x = pixels.begin % width, y = pixels.begin / width % height, image = pixels.begin / width / height;
    for (size_t index = 0; index < static_cast<size_t>(pixels.count()); ++index) {
        places.source[index] =
            ((image * shape.in_blocks * shape.height + y * shape.stride) * shape.width + x * shape.stride) * shape.block;
        places.gathered[index] = static_cast<int64_t>(index) * shape.block;
        places.result[index] = ((image * shape.out_blocks * height + y) * width + x) * shape.block;
        if (++x < width) continue;
        x = 0;
        if (++y < height) continue;
        y = 0;
        ++image;
    }
}

// A tile's pixels one behind the other, block of channels by block of channels.
template <size_t kBlock>
void gather(const float* source, int64_t plane, std::span<const int64_t> places, int64_t depth_blocks, float* to) {
    for (int64_t depth = 0; depth < depth_blocks; ++depth, source += plane) {
        for (const int64_t place : places) to = std::copy_n(source + place, kBlock, to);
    }
}

// `gathered`: the thread's own memory, used with a stride.
void convolve_tile(const PointwiseShape& shape, const PointwiseForward& forward, int64_t depth_blocks, Range pixels, Range columns,
                   float* gathered) {
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
        .left_stride = shape.stride == 1 ? plane : pixels.count() * shape.block,
        .left_places = shape.stride == 1 ? places.source.data() : places.gathered.data(),
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
        if (shape.stride > 1) {
            const auto gather_blocks = shape.block == 8 ? gather<8> : gather<16>;
            gather_blocks(product.left, plane, std::span(places.source).first(product.pixels), product.depth_blocks, gathered);
            product.left = gathered;
        }
        product.right = forward.weights + (columns.begin * shape.in_blocks + depth) * weight_floats;
        product.onto = depth > 0;
        product.complete = depth + product.depth_blocks == shape.in_blocks;
        pointwise::multiply(product);
    }
}

}  // namespace

bool pointwise_runs_here(int64_t block) { return (block == 8 || block == 16) && block <= pointwise::lane_count(); }

size_t pointwise_forward_scratch(const PointwiseShape& shape, int threads) {
    return static_cast<size_t>(threads * gathered_floats(shape));
}

void pointwise_forward(const PointwiseShape& shape, const PointwiseForward& forward) {
    const int threads = omp_get_max_threads();
    const Shares shares = shares_of(shape, threads);
    on_all_threads([&] {
        const int64_t thread = omp_get_thread_num();
        const Range pixels = part_of(pixels_of(shape), shares.pixel_parts, thread / shares.column_parts);
        const Range columns = part_of(shape.out_blocks, shares.column_parts, thread % shares.column_parts);
        if (pixels.count() > 0 && columns.count() > 0) {
            const Tiling tiling = tiling_of(shape, pixels.count());
            float* const gathered = forward.scratch + thread * gathered_floats(shape);
            for (int64_t first = pixels.begin; first < pixels.end; first += tiling.pixels) {
                convolve_tile(shape, forward, tiling.depth_blocks, {first, std::min(first + tiling.pixels, pixels.end)}, columns,
                              gathered);
            }
        }
    });
}

}  // namespace lockstep::onednn
