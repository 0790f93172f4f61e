#include "data_loader/geometry.h"

#include <algorithm>

namespace lockstep {

int round_half_even(double value) {
    const double floor = std::floor(value);
    const double rest = value - floor;
    const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(floor, 2.0) != 0.0);
    return static_cast<int>(floor) + (up ? 1 : 0);
}

ImageSize shorter_side_to(ImageSize image, int side) {
    const int shorter = std::min(image.width, image.height);
    const int longer = std::max(image.width, image.height);
    const int scaled = static_cast<int>(std::min<int64_t>(int64_t{side} * longer / shorter, INT32_MAX));
    return image.width <= image.height ? ImageSize{side, scaled} : ImageSize{scaled, side};
}

CropBox center_box(ImageSize image, int width, int height) {
    return {round_half_even((image.width - width) / 2.0), round_half_even((image.height - height) / 2.0), width, height};
}

CropBox fallback_box(ImageSize image, const Transform& transform) {
    const double aspect = static_cast<double>(image.width) / image.height;
    int width = image.width, height = image.height;
    if (aspect < transform.ratio_min) {
        height = std::clamp(round_half_even(width / transform.ratio_min), 1, image.height);
    } else if (aspect > transform.ratio_max) {
        width = std::clamp(round_half_even(height * transform.ratio_max), 1, image.width);
    }
    return {(image.width - width) / 2, (image.height - height) / 2, width, height};
}

}  // namespace lockstep
