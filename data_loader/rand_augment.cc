#include "data_loader/rand_augment.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "core/error.h"
#include "data_loader/color_ops.h"

namespace lockstep {

namespace {

constexpr double kPi = std::numbers::pi;

// Element `index` of torch.linspace(first, last, count), whose loops multiply and add in one rounding.
double linspace(double first, double last, int count, int index) {
    const float begin = static_cast<float>(first), end = static_cast<float>(last);
    if (count == 1) return begin;
    const float step = (end - begin) / static_cast<float>(count - 1);
    return index < count / 2 ? std::fma(step, static_cast<float>(index), begin)
                             : std::fma(-step, static_cast<float>(count - 1 - index), end);
}

// An inverse map: output (x, y) comes from (a x + b y + c, d x + e y + f).
struct Affine {
    double a = 1, b = 0, c = 0, d = 0, e = 1, f = 0;
};

// Output pixel by output pixel in 16.16 fixed point, as Pillow's transform with NEAREST; black where nothing is.
ImageView transform(const ImageView& image, const Affine& map, Image& other) {
    const auto fixed = [](double value) { return static_cast<int64_t>(std::floor(value * 65536.0 + 0.5)); };
    const ImageView out = other.reshape(image.width, image.height, image.bytes_per_pixel);
    std::memset(out.pixels, 0, out.stride_bytes * static_cast<size_t>(out.height));
    const size_t bytes = static_cast<size_t>(image.bytes_per_pixel);
    const int64_t a = fixed(map.a), b = fixed(map.b), d = fixed(map.d), e = fixed(map.e);
    int64_t row_x = fixed(map.c + map.a * 0.5 + map.b * 0.5), row_y = fixed(map.f + map.d * 0.5 + map.e * 0.5);
    for (int y = 0; y < out.height; ++y, row_x += b, row_y += e) {
        int64_t from_x = row_x, from_y = row_y;
        for (int x = 0; x < out.width; ++x, from_x += a, from_y += d) {
            const int64_t column = from_x >> 16, row = from_y >> 16;
            if (column < 0 || column >= image.width || row < 0 || row >= image.height) continue;
            std::memcpy(out.row(y) + static_cast<size_t>(x) * bytes,
                        image.row(static_cast<int>(row)) + static_cast<size_t>(column) * bytes, bytes);
        }
    }
    return out;
}

// torchvision goes from the tangent to degrees and back.
double there_and_back(double tangent) { return std::tan((std::atan(tangent) * (180.0 / kPi)) * (kPi / 180.0)); }

// Around the centre, counter-clockwise; Pillow rounds sine and cosine to 15 decimals.
Affine rotation(double degrees, ImageSize size) {
    double turn = std::fmod(degrees, 360.0);
    if (turn < 0.0) turn += 360.0;
    const double angle = -(turn * (kPi / 180.0));
    const auto rounded = [](double value) { return std::nearbyint(value * 1e15) / 1e15; };
    const double cosine = rounded(std::cos(angle)), sine = rounded(std::sin(angle));
    const double x = size.width / 2.0, y = size.height / 2.0;
    return {cosine, sine, cosine * -x + sine * -y + x, -sine, cosine, -sine * -x + cosine * -y + y};
}

}  // namespace

std::string_view name_of(AugmentOperation operation) {
    static constexpr std::array<std::string_view, kAugmentOperations> kNames{
        "identity", "shear x",  "shear y",   "translate x", "translate y", "rotate",       "brightness",
        "color",    "contrast", "sharpness", "posterize",   "solarize",    "autocontrast", "equalize"};
    return kNames[static_cast<size_t>(operation)];
}

bool is_signed(AugmentOperation operation) {
    return operation >= AugmentOperation::shear_x && operation <= AugmentOperation::sharpness;
}

double augment_magnitude(AugmentOperation operation, int magnitude, int bins, ImageSize image) {
    switch (operation) {
        case AugmentOperation::shear_x:
        case AugmentOperation::shear_y:
            return linspace(0.0, 0.3, bins, magnitude);
        case AugmentOperation::translate_x:
            return linspace(0.0, 150.0 / 331.0 * image.width, bins, magnitude);
        case AugmentOperation::translate_y:
            return linspace(0.0, 150.0 / 331.0 * image.height, bins, magnitude);
        case AugmentOperation::rotate:
            return linspace(0.0, 30.0, bins, magnitude);
        case AugmentOperation::brightness:
        case AugmentOperation::color:
        case AugmentOperation::contrast:
        case AugmentOperation::sharpness:
            return linspace(0.0, 0.9, bins, magnitude);
        case AugmentOperation::posterize: {
            const float quarter = static_cast<float>((bins - 1) / 4.0);
            return 8.0 - std::nearbyint(static_cast<float>(magnitude) / quarter);
        }
        case AugmentOperation::solarize:
            return linspace(255.0, 0.0, bins, magnitude);
        case AugmentOperation::identity:
        case AugmentOperation::autocontrast:
        case AugmentOperation::equalize:
            break;
    }
    return 0.0;
}

ImageView apply(AugmentOperation operation, double value, const ImageView& image, Image& other) {
    switch (operation) {
        case AugmentOperation::identity:
            return image;
        case AugmentOperation::shear_x:
            return transform(image, {.b = there_and_back(value)}, other);
        case AugmentOperation::shear_y:
            return transform(image, {.d = there_and_back(value)}, other);
        case AugmentOperation::translate_x:
            return transform(image, {.c = -std::trunc(value)}, other);
        case AugmentOperation::translate_y:
            return transform(image, {.f = -std::trunc(value)}, other);
        case AugmentOperation::rotate:
            return transform(image, rotation(value, {image.width, image.height}), other);
        case AugmentOperation::brightness:
            adjust_brightness(image, 1.0 + value);
            return image;
        case AugmentOperation::color:
            adjust_saturation(image, 1.0 + value);
            return image;
        case AugmentOperation::contrast:
            adjust_contrast(image, 1.0 + value);
            return image;
        case AugmentOperation::sharpness:
            adjust_sharpness(image, 1.0 + value, other);
            return image;
        case AugmentOperation::posterize:
            posterize(image, static_cast<int>(value));
            return image;
        case AugmentOperation::solarize:
            solarize(image, value);
            return image;
        case AugmentOperation::autocontrast:
            autocontrast(image);
            return image;
        case AugmentOperation::equalize:
            equalize(image);
            return image;
    }
    check(false, "unknown augmentation");
    return image;
}

}  // namespace lockstep
