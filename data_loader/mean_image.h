// A mean for every pixel, as Caffe's compute_image_mean writes it: subtracted in place of a mean for each channel.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

struct MeanImage {
    int channels = 0, height = 0, width = 0;
    std::vector<float> values;  // (channels, height, width), red first, of pixels in [0, 1]
};

// Reads a serialised BlobProto (caffe.proto): `data` of (1, channels, height, width), blue first, of pixels in 0 to 255. DataError
// naming `path` for a damaged message, sizes that do not fit the number of values, and values that are no numbers.
MeanImage parse_mean_image(std::span<const std::byte> file, std::string_view path);

// `out`: pixels in [0, 1] on entry, (out - mean) / stddev of their channel on exit, every operation in fp32. A mirrored picture has
// its mean mirrored too, as in Caffe: the mean belongs to the stored pixel. `out` has the mean's shape.
void subtract_mean_image(const MeanImage& mean, const std::array<float, 3>& stddev, bool mirrored, std::span<float> out);

}  // namespace lockstep
