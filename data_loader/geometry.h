// Where to crop and what to resize to: torchvision's arithmetic, without pixels. Randomness comes in as two callables, so the
// same code runs from a RandomStream and from recorded numbers.
#pragma once

#include <cmath>
#include <cstdint>

#include "data_loader/image.h"
#include "data_loader/loader.h"

namespace lockstep {

struct CropBox {
    int x = 0, y = 0, width = 0, height = 0;
    bool operator==(const CropBox&) const = default;
};

int round_half_even(double value);

// The shorter side becomes `side`; the other is truncated, not rounded.
ImageSize shorter_side_to(ImageSize image, int side);

// Centre crop after padding: offset rounded half to even.
CropBox center_box(ImageSize image, int width, int height);

// The largest centred box whose aspect lies in the range: what random_resized_crop takes when its tries fail.
CropBox fallback_box(ImageSize image, const Transform& transform);

// random_resized_crop: up to ten tries of area and aspect, then the fallback. `uniform()` gives [0, 1); `below(n)` an integer in
// [0, n).
template <typename Uniform, typename Below>
CropBox random_resized_box(ImageSize image, const Transform& transform, Uniform uniform, Below below) {
    const double area = static_cast<double>(image.width) * image.height;
    const double log_ratio_min = std::log(transform.ratio_min), log_ratio_max = std::log(transform.ratio_max);
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double target = area * (transform.scale_min + uniform() * (transform.scale_max - transform.scale_min));
        const double aspect = std::exp(log_ratio_min + uniform() * (log_ratio_max - log_ratio_min));
        const double exact_width = std::sqrt(target * aspect), exact_height = std::sqrt(target / aspect);
        if (exact_width > image.width + 1.0 || exact_height > image.height + 1.0) continue;  // also keeps the rounding in range
        const int width = round_half_even(exact_width), height = round_half_even(exact_height);
        if (width <= 0 || width > image.width || height <= 0 || height > image.height) continue;
        const int y = static_cast<int>(below(static_cast<uint64_t>(image.height - height + 1)));
        const int x = static_cast<int>(below(static_cast<uint64_t>(image.width - width + 1)));
        return {x, y, width, height};
    }
    return fallback_box(image, transform);
}

}  // namespace lockstep
