#include "data_loader/mix.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

namespace {

// The logarithm of a number of the gamma distribution of this shape (Marsaglia and Tsang, 2000), for any shape above 0: that of
// shape + 1 times u^(1 / shape). Logarithms, because numbers of small shapes are often too small for a double.
double log_gamma_draw(double shape, RandomStream& random) {
    const double d = shape + 1.0 - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
    const double boost = std::log(1.0 - random.uniform_double()) / shape;
    while (true) {
        const double x = static_cast<double>(random.normal()), root = 1.0 + c * x;
        const double u = 1.0 - random.uniform_double();
        if (root <= 0.0) continue;
        const double v = root * root * root;
        if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v) + boost;
    }
}

Mixture draw_cut(double kept, ImageSize image, RandomStream& random) {
    const int x = static_cast<int>(random.below(static_cast<uint64_t>(image.width)));
    const int y = static_cast<int>(random.below(static_cast<uint64_t>(image.height)));
    const double half = 0.5 * std::sqrt(1.0 - kept);
    const int half_width = static_cast<int>(half * image.width), half_height = static_cast<int>(half * image.height);
    const int left = std::max(x - half_width, 0), right = std::min(x + half_width, image.width);
    const int top = std::max(y - half_height, 0), bottom = std::min(y + half_height, image.height);
    const double area = static_cast<double>(right - left) * (bottom - top) / (static_cast<double>(image.width) * image.height);
    return {.second_share = static_cast<float>(area), .cut = {left, top, right - left, bottom - top}, .cuts = true};
}

void blend(float share, std::span<float> image, std::span<const float> other) {
    const float kept = 1.0F - share;
    for (size_t index = 0; index < image.size(); ++index) image[index] = kept * image[index] + share * other[index];
}

void paste(const CropBox& box, ImageSize size, std::span<float> image, std::span<const float> other) {
    const size_t width = static_cast<size_t>(size.width), plane = width * static_cast<size_t>(size.height);
    for (size_t channel = 0; channel * plane < image.size(); ++channel) {
        for (int y = box.y; y < box.y + box.height; ++y) {
            const size_t place = channel * plane + static_cast<size_t>(y) * width + static_cast<size_t>(box.x);
            std::copy_n(other.begin() + static_cast<ptrdiff_t>(place), box.width, image.begin() + static_cast<ptrdiff_t>(place));
        }
    }
}

}  // namespace

double draw_beta(double alpha, RandomStream& random) {
    const double x = log_gamma_draw(alpha, random), y = log_gamma_draw(alpha, random);
    return 1.0 / (1.0 + std::exp(y - x));
}

Mixture draw_mixture(const MixOptions& options, ImageSize image, RandomStream& random) {
    const bool both = options.mixup > 0.0 && options.cutmix > 0.0;
    const bool cuts = both ? random.below(2) == 1 : options.cutmix > 0.0;
    const double kept = draw_beta(cuts ? options.cutmix : options.mixup, random);
    if (cuts) return draw_cut(kept, image, random);
    return {.second_share = static_cast<float>(1.0 - kept)};
}

void mix(const Mixture& mixture, ImageSize image, std::span<float> images, std::span<const int32_t> labels,
         std::span<int32_t> second_labels, std::vector<float>& scratch) {
    const size_t count = labels.size(), floats = images.size() / std::max<size_t>(count, 1);
    const auto at = [&](size_t index) { return images.subspan(index * floats, floats); };
    if (count == 0) return;
    scratch.assign(at(count - 1).begin(), at(count - 1).end());
    // From the back, so that each image meets its neighbour unmixed.
    for (size_t index = count; index-- > 0;) {
        const std::span<const float> other = index == 0 ? std::span<const float>(scratch) : at(index - 1);
        if (mixture.cuts) {
            paste(mixture.cut, image, at(index), other);
        } else {
            blend(mixture.second_share, at(index), other);
        }
        second_labels[index] = labels[index == 0 ? count - 1 : index - 1];
    }
}

}  // namespace lockstep
