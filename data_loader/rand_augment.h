// RandAugment (arXiv:1909.13719) as torchvision has it: its 14 operations, magnitudes, nearest interpolation and black filling;
// byte for byte what it makes of Pillow's images.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "data_loader/image.h"

namespace lockstep {

enum class AugmentOperation : uint8_t {
    identity,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
    rotate,
    brightness,
    color,
    contrast,
    sharpness,
    posterize,
    solarize,
    autocontrast,
    equalize,
};
constexpr int kAugmentOperations = 14;
std::string_view name_of(AugmentOperation operation);

// What `magnitude` (0 to bins - 1) means to an operation on an image of this size, before the sign; the arithmetic is that of
// torch.linspace in fp32.
double augment_magnitude(AugmentOperation operation, int magnitude, int bins, ImageSize image);
bool is_signed(AugmentOperation operation);

// Works in place or into `other`, and returns where the result is. `value`: a magnitude with its sign.
ImageView apply(AugmentOperation operation, double value, const ImageView& image, Image& other);

}  // namespace lockstep
