// Where to crop and what to resize to: torchvision's arithmetic, without pixels. Randomness comes in as two callables, so the
// same code runs from a RandomStream and from recorded numbers.
#pragma once

#include <cmath>
#include <cstdint>

#include "data_loader/image.h"
#include "data_loader/pipeline_options.h"

namespace lockstep {

int round_half_even(double value);

// The shorter side becomes `side`; the other is truncated, not rounded.
ImageSize shorter_side_to(ImageSize image, int side);

// Centre crop after padding: offset rounded half to even.
CropBox center_box(ImageSize image, int width, int height);

// The largest centred box whose aspect lies in the range: what random_resized_crop takes when its tries fail.
CropBox fallback_box(ImageSize image, const Transform& transform);

// random_resized_crop: some tries of area and aspect, then the fallback. `uniform()` gives [0, 1); `below(n)` an integer in [0, n).
template <typename Uniform, typename Below>
CropBox random_resized_box(ImageSize image, const Transform& transform, Uniform uniform, Below below) {
    const double area = static_cast<double>(image.width) * image.height;
    const bool lbann = transform.draws == CropDraws::lbann;
    const double low = lbann ? transform.ratio_min : std::log(transform.ratio_min);
    const double high = lbann ? transform.ratio_max : std::log(transform.ratio_max);
    for (int attempt = 0; attempt < transform.tries; ++attempt) {
        const double target = area * (transform.scale_min + uniform() * (transform.scale_max - transform.scale_min));
        const double drawn = low + uniform() * (high - low);
        double aspect = lbann ? drawn : std::exp(drawn);
        if (lbann && below(2) == 1) aspect = 1.0 / aspect;
        const double exact_width = std::sqrt(target * aspect), exact_height = std::sqrt(target / aspect);
        if (exact_width > image.width + 1.0 || exact_height > image.height + 1.0) continue;  // also keeps the rounding in range
        const int width = lbann ? static_cast<int>(exact_width) : round_half_even(exact_width);
        const int height = lbann ? static_cast<int>(exact_height) : round_half_even(exact_height);
        if (width <= 0 || width > image.width || height <= 0 || height > image.height) continue;
        const int y = static_cast<int>(below(static_cast<uint64_t>(image.height - height + 1)));
        const int x = static_cast<int>(below(static_cast<uint64_t>(image.width - width + 1)));
        return {x, y, width, height};
    }
    return fallback_box(image, transform);
}

// random_erasing: ten tries of area and aspect (here height / width); a box of no pixels when all fail.
template <typename Uniform, typename Below>
CropBox random_erasing_box(ImageSize image, const Transform& transform, Uniform uniform, Below below) {
    const double area = static_cast<double>(image.width) * image.height;
    const double low = std::log(transform.ratio_min), high = std::log(transform.ratio_max);
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double target = area * (transform.scale_min + uniform() * (transform.scale_max - transform.scale_min));
        const double aspect = std::exp(low + uniform() * (high - low));
        const double exact_height = std::sqrt(target * aspect), exact_width = std::sqrt(target / aspect);
        if (exact_height > image.height || exact_width > image.width) continue;
        const int height = round_half_even(exact_height), width = round_half_even(exact_width);
        if (height >= image.height || width >= image.width) continue;
        const int y = static_cast<int>(below(static_cast<uint64_t>(image.height - height + 1)));
        const int x = static_cast<int>(below(static_cast<uint64_t>(image.width - width + 1)));
        return {x, y, width, height};
    }
    return {};
}

}  // namespace lockstep
