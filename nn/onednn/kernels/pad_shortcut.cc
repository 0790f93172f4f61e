#include "nn/onednn/kernels/pad_shortcut.h"

#include <cstring>

#include "nn/onednn/kernels/parallel.h"

namespace lockstep::onednn {

namespace {

// One pixel's block of the target, filled from the source's channels shifted by `shift`; what the source lacks becomes zero.
struct BlockCopy {
    const ChannelBlocks* source;
    const ChannelBlocks* target;
    int64_t shift;  // source channel = target channel + shift
    size_t element_bytes;

    void run(const std::byte* source_pixel, std::byte* target_block, int64_t block) const {
        const int64_t first = block * target->block + shift;
        if (first + target->block <= 0 || first >= source->channels) {
            std::memset(target_block, 0, bytes(target->block));
            return;
        }
        const bool aligned = target->block == source->block && first % source->block == 0;
        if (aligned && first >= 0 && first + target->block <= source->channels) {
            const int64_t offset = first / source->block * source->block_stride;
            std::memcpy(target_block, source_pixel + bytes(offset), bytes(target->block));
            return;
        }
        for (int64_t lane = 0; lane < target->block; ++lane) {
            const int64_t channel = first + lane;
            std::byte* out = target_block + bytes(lane);
            if (channel < 0 || channel >= source->channels || block * target->block + lane >= target->channels) {
                std::memset(out, 0, element_bytes);
            } else {
                const int64_t offset = channel / source->block * source->block_stride + channel % source->block;
                std::memcpy(out, source_pixel + bytes(offset), element_bytes);
            }
        }
    }

    size_t bytes(int64_t elements) const { return static_cast<size_t>(elements) * element_bytes; }
};

// Calls work(image, block, row) for all rows of a tensor's blocks, in parallel.
template <typename Work>
void for_each_row(int64_t batch, const ChannelBlocks& shape, const Work& work) {
    const int64_t rows = batch * shape.block_count * shape.height;
    const int64_t smallest = std::max<int64_t>(1, 8192 / (shape.width * shape.block));
    parallel_ranges(rows, smallest, [&](int64_t index, int64_t end) {
        for (; index < end; ++index) {
            const int64_t image_and_block = index / shape.height;
            work(image_and_block / shape.block_count, image_and_block % shape.block_count, index % shape.height);
        }
    });
}

}  // namespace

void pad_shortcut_forward(const PadShortcut& shape, const void* input, void* output) {
    const BlockCopy copy{&shape.small, &shape.large, -shape.channels_before, shape.element_bytes};
    const auto* source = static_cast<const std::byte*>(input);
    auto* target = static_cast<std::byte*>(output);
    for_each_row(shape.batch, shape.large, [&](int64_t image, int64_t block, int64_t row) {
        const int64_t from = image * shape.small.image_stride + row * shape.stride * shape.small.row_stride;
        const int64_t to = image * shape.large.image_stride + block * shape.large.block_stride + row * shape.large.row_stride;
        for (int64_t column = 0; column < shape.large.width; ++column) {
            copy.run(source + copy.bytes(from + column * shape.stride * shape.small.pixel_stride),
                     target + copy.bytes(to + column * shape.large.pixel_stride), block);
        }
    });
}

void pad_shortcut_backward(const PadShortcut& shape, const void* output_gradient, void* input_gradient) {
    const BlockCopy copy{&shape.large, &shape.small, shape.channels_before, shape.element_bytes};
    const auto* source = static_cast<const std::byte*>(output_gradient);
    auto* target = static_cast<std::byte*>(input_gradient);
    for_each_row(shape.batch, shape.small, [&](int64_t image, int64_t block, int64_t row) {
        const int64_t from = image * shape.large.image_stride + row / shape.stride * shape.large.row_stride;
        const int64_t to = image * shape.small.image_stride + block * shape.small.block_stride + row * shape.small.row_stride;
        for (int64_t column = 0; column < shape.small.width; ++column) {
            std::byte* out = target + copy.bytes(to + column * shape.small.pixel_stride);
            if (row % shape.stride != 0 || column % shape.stride != 0) {
                std::memset(out, 0, copy.bytes(shape.small.block));
            } else {
                copy.run(source + copy.bytes(from + column / shape.stride * shape.large.pixel_stride), out, block);
            }
        }
    });
}

}  // namespace lockstep::onednn
