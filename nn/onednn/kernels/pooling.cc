#include "nn/onednn/kernels/pooling.h"

#include <algorithm>

#include "core/error.h"
#include "hwy/cache_control.h"
#include "nn/onednn/kernels/parallel.h"

namespace lockstep::onednn {

namespace {

constexpr int64_t kSmallestPieceElements = 8192;
constexpr int64_t kPastCachesBytes = int64_t{24} << 20;  // results larger than this leave the caches before they are read

using pool_lines::Line;

const std::byte* at(const PoolShape& shape, const void* data, int64_t element) {
    return static_cast<const std::byte*>(data) + static_cast<size_t>(element) * bytes_per_element(shape.type);
}
std::byte* at(const PoolShape& shape, void* data, int64_t element) {
    return const_cast<std::byte*>(at(shape, static_cast<const void*>(data), element));
}

bool goes_past_caches(const PoolShape& shape, int64_t pixels, const void* result) {
    const int64_t bytes = shape.planes * pixels * shape.block * static_cast<int64_t>(bytes_per_element(shape.type));
    return bytes >= kPastCachesBytes && reinterpret_cast<uintptr_t>(result) % 64 == 0;
}

}  // namespace

Pooling::Pooling(const PoolShape& shape) : shape_(shape), rows_(axis_of(shape.rows)), columns_(axis_of(shape.columns)) {
    check(shape.block == 8 || shape.block == 16, "pooling knows blocks of 8 or 16 channels only");
    check(shape.type == DataType::f32 || shape.type == DataType::bf16, "pooling knows f32 and bf16 only");
}

Pooling::Axis Pooling::axis_of(const PoolAxis& axis) const {
    Axis result;
    result.covering.resize(static_cast<size_t>(axis.input));
    for (int64_t output = 0; output < axis.output; ++output) {
        const int64_t first = output * axis.stride - axis.pad;
        const Span window{std::max<int64_t>(first, 0), std::min(first + axis.kernel, axis.input)};
        check(window.begin < window.end, "a window has a part inside the image");
        const int64_t padded = std::min(axis.kernel, axis.input + axis.pad - first);
        result.windows.push_back(window);
        result.quotients.push_back(1.0F / static_cast<float>(shape_.count_padding ? padded : window.end - window.begin));
        for (int64_t input = window.begin; input < window.end; ++input) {
            Span& covering = result.covering[static_cast<size_t>(input)];
            if (covering.end == 0) covering.begin = output;
            covering.end = output + 1;
        }
    }
    return result;
}

template <typename Work>  // work(plane, row)
void Pooling::for_each_line(int64_t lines_per_plane, const Work& work) const {
    const int64_t plane_elements =
        std::max(shape_.rows.input * shape_.columns.input, shape_.rows.output * shape_.columns.output) * shape_.block;
    const int64_t smallest = std::max<int64_t>(1, kSmallestPieceElements * lines_per_plane / plane_elements);
    parallel_ranges(
        shape_.planes * lines_per_plane, smallest,
        [&](int64_t line, int64_t end) {
            for (; line < end; ++line) work(line / lines_per_plane, line % lines_per_plane);
            hwy::FlushStream();  // stores around the caches are seen by others from here on
        },
        1);
}

// An output row of one plane. Its windows' places count from their own first pixels.
Line Pooling::forward_line(int64_t plane, int64_t row, const void* source, void* result) const {
    const PoolAxis& rows = shape_.rows;
    const PoolAxis& columns = shape_.columns;
    return {.type = shape_.type,
            .block = shape_.block,
            .source = at(shape_, source, plane * rows.input * columns.input * shape_.block),
            .source_width = columns.input,
            .rows = rows_.windows[static_cast<size_t>(row)],
            .columns = columns_.windows.data(),
            .result = at(shape_, result, (plane * rows.output + row) * columns.output * shape_.block),
            .width = columns.output,
            .place = (rows.pad - row * rows.stride) * columns.kernel + columns.pad,
            .place_per_row = columns.kernel,
            .place_per_column = 1,
            .place_per_pixel = -columns.stride,
            .row_quotients = rows_.quotients.data() + row,
            .column_quotients = columns_.quotients.data(),
            .past_caches = goes_past_caches(shape_, rows.output * columns.output, result)};
}

// An input row of one plane, from the output rows whose windows cover it.
Line Pooling::backward_line(int64_t plane, int64_t row, const void* gradient, void* source_gradient) const {
    const PoolAxis& rows = shape_.rows;
    const PoolAxis& columns = shape_.columns;
    return {.type = shape_.type,
            .block = shape_.block,
            .source = at(shape_, gradient, plane * rows.output * columns.output * shape_.block),
            .source_width = columns.output,
            .rows = rows_.covering[static_cast<size_t>(row)],
            .columns = columns_.covering.data(),
            .result = at(shape_, source_gradient, (plane * rows.input + row) * columns.input * shape_.block),
            .width = columns.input,
            .place = (row + rows.pad) * columns.kernel + columns.pad,
            .place_per_row = -rows.stride * columns.kernel,
            .place_per_column = -columns.stride,
            .place_per_pixel = 1,
            .row_quotients = rows_.quotients.data(),
            .column_quotients = columns_.quotients.data(),
            .past_caches = goes_past_caches(shape_, rows.input * columns.input, source_gradient)};
}

void Pooling::max_forward(const void* source, void* result, uint8_t* winners) const {
    check(winners == nullptr || shape_.rows.kernel * shape_.columns.kernel <= kLargestWindow, "a winner's place fits a byte");
    for_each_line(shape_.rows.output, [&](int64_t plane, int64_t row) {
        Line line = forward_line(plane, row, source, result);
        if (winners != nullptr) {
            line.winners = winners + (plane * shape_.rows.output + row) * shape_.columns.output * shape_.block;
        }
        pool_lines::max_forward(line);
    });
}

void Pooling::max_backward(const void* gradient, const uint8_t* winners, void* source_gradient) const {
    for_each_line(shape_.rows.input, [&](int64_t plane, int64_t row) {
        Line line = backward_line(plane, row, gradient, source_gradient);
        line.source_winners = winners + plane * shape_.rows.output * shape_.columns.output * shape_.block;
        pool_lines::max_backward(line);
    });
}

void Pooling::average_forward(const void* source, void* result) const {
    for_each_line(shape_.rows.output,
                  [&](int64_t plane, int64_t row) { pool_lines::average_forward(forward_line(plane, row, source, result)); });
}

void Pooling::average_backward(const void* gradient, void* source_gradient) const {
    for_each_line(shape_.rows.input, [&](int64_t plane, int64_t row) {
        pool_lines::average_backward(backward_line(plane, row, gradient, source_gradient));
    });
}

}  // namespace lockstep::onednn
