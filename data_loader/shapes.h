// A learnable set of ten classes, drawn instead of downloaded: one shape a picture, of any colour, place, size and angle, over a
// graded background with clutter and noise. JPEG files in class folders; the same seed gives the same bytes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data_loader/image.h"

namespace lockstep {

// In byte order, so that the class number is the place in this table.
constexpr std::array<std::string_view, 10> kShapeNames{"bar",  "checker", "circle", "crescent", "cross",
                                                       "ring", "square",  "star",   "stripes",  "triangle"};

enum class ShapeSize : uint8_t { small, medium, imagenet };  // 32x32, 128x128, sides of 300 to 500

struct ShapesOptions {
    std::filesystem::path out;  // gets train/CLASS/*.jpg, val/CLASS/*.jpg and shapes.txt
    int64_t train_count = 4000, val_count = 1000;
    ShapeSize size = ShapeSize::small;
    uint64_t seed = 1;
    int threads = 1;
};

// Picture `index` of a part ("train" or "val"): pure. Returns its class.
int32_t draw_shape(uint64_t seed, std::string_view part, int64_t index, ShapeSize size, Image& out);

// The same picture as a JPEG file, which replaces what `file` held; `image` is memory to draw in.
int32_t draw_shape_file(uint64_t seed, std::string_view part, int64_t index, ShapeSize size, Image& image,
                        std::vector<uint8_t>& file);

// Writes the set; false when `out` already holds exactly this one. An interrupted run is made anew. ConfigError when `out` holds
// another set or folders of somebody else; DeviceError when a file cannot be written.
bool write_shapes(const ShapesOptions& options);

}  // namespace lockstep
