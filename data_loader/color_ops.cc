#include "data_loader/color_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace lockstep {

namespace {

using Table = std::array<uint8_t, 256>;
using Histogram = std::array<int64_t, 256>;

int channels_of(const ImageView& image) { return image.bytes_per_pixel == 1 ? 1 : 3; }

template <typename Work>  // work(pixel)
void for_each_pixel(const ImageView& image, Work work) {
    for (int y = 0; y < image.height; ++y) {
        uint8_t* pixel = image.row(y);
        for (int x = 0; x < image.width; ++x, pixel += image.bytes_per_pixel) work(pixel);
    }
}

void look_up(const ImageView& image, int channel, const Table& table) {
    for_each_pixel(image, [&](uint8_t* pixel) { pixel[channel] = table[pixel[channel]]; });
}

template <typename Function>
void map_all(const ImageView& image, Function function) {
    Table table;
    for (int value = 0; value < 256; ++value) table[static_cast<size_t>(value)] = static_cast<uint8_t>(function(value));
    for (int channel = 0; channel < channels_of(image); ++channel) look_up(image, channel, table);
}

Histogram histogram_of(const ImageView& image, int channel) {
    Histogram histogram{};
    for_each_pixel(image, [&](const uint8_t* pixel) { ++histogram[pixel[channel]]; });
    return histogram;
}

// Pillow's Image.blend: from `a` (factor 0) to `b` (factor 1) and beyond, in fp32, truncated.
uint8_t blend(int a, int b, float factor) {
    const float product = factor * static_cast<float>(b - a);
    return static_cast<uint8_t>(std::clamp(static_cast<float>(a) + product, 0.0F, 255.0F));
}

// Pillow's RGB to HSV and back, of 8 bits each.
void to_hsv(const uint8_t* rgb, uint8_t* hsv) {
    const int r = rgb[0], g = rgb[1], b = rgb[2];
    const int largest = std::max({r, g, b}), smallest = std::min({r, g, b});
    hsv[0] = hsv[1] = 0;
    hsv[2] = static_cast<uint8_t>(largest);
    if (largest == smallest) return;
    const float range = static_cast<float>(largest - smallest);
    const float saturation = range / static_cast<float>(largest);
    const float red = static_cast<float>(largest - r) / range, green = static_cast<float>(largest - g) / range,
                blue = static_cast<float>(largest - b) / range;
    float hue = 0.0F;
    if (r == largest) {
        hue = blue - green;
    } else if (g == largest) {
        hue = static_cast<float>(2.0 + static_cast<double>(red) - static_cast<double>(blue));
    } else {
        hue = static_cast<float>(4.0 + static_cast<double>(green) - static_cast<double>(red));
    }
    hue = static_cast<float>(std::fmod(static_cast<double>(hue) / 6.0 + 1.0, 1.0));
    hsv[0] = static_cast<uint8_t>(std::clamp(static_cast<int>(static_cast<double>(hue) * 255.0), 0, 255));
    hsv[1] = static_cast<uint8_t>(std::clamp(static_cast<int>(static_cast<double>(saturation) * 255.0), 0, 255));
}

void from_hsv(const uint8_t* hsv, uint8_t* rgb) {
    const uint8_t value = hsv[2];
    if (hsv[1] == 0) {
        rgb[0] = rgb[1] = rgb[2] = value;
        return;
    }
    const double place = static_cast<double>(hsv[0]) * 6.0 / 255.0;
    const int sector = static_cast<int>(std::floor(place));
    const float rest = static_cast<float>(place - sector);
    const float saturation = static_cast<float>(static_cast<double>(hsv[1]) / 255.0);
    const auto scaled = [&](double factor) { return static_cast<uint8_t>(std::clamp(std::round(value * factor), 0.0, 255.0)); };
    const uint8_t p = scaled(1.0 - static_cast<double>(saturation));
    const uint8_t q = scaled(1.0 - static_cast<double>(saturation * rest));
    const uint8_t t = scaled(1.0 - static_cast<double>(saturation) * (1.0 - static_cast<double>(rest)));
    const uint8_t sectors[6][3] = {{value, t, p}, {q, value, p}, {p, value, t}, {p, q, value}, {t, p, value}, {value, p, q}};
    std::memcpy(rgb, sectors[sector % 6], 3);
}

}  // namespace

uint8_t grey_of(const uint8_t* rgb) {
    return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

ImageView to_grey(const ImageView& image) {
    for (int y = 0; y < image.height; ++y) {
        uint8_t* row = image.row(y);
        for (int x = 0; x < image.width; ++x) row[x] = grey_of(row + 4 * static_cast<ptrdiff_t>(x));
    }
    return {image.pixels, image.width, image.height, 1, image.stride_bytes};
}

void adjust_brightness(const ImageView& image, double factor) {
    map_all(image, [=](int value) { return blend(0, value, static_cast<float>(factor)); });
}

void adjust_contrast(const ImageView& image, double factor) {
    int64_t sum = 0;
    const bool grey = image.bytes_per_pixel == 1;
    for_each_pixel(image, [&](const uint8_t* pixel) { sum += grey ? *pixel : grey_of(pixel); });
    const double pixels = static_cast<double>(image.width) * image.height;
    const int mean = static_cast<int>(static_cast<double>(sum) / pixels + 0.5);
    map_all(image, [=](int value) { return blend(mean, value, static_cast<float>(factor)); });
}

void adjust_saturation(const ImageView& image, double factor) {
    if (image.bytes_per_pixel == 1) return;
    for_each_pixel(image, [factor = static_cast<float>(factor)](uint8_t* pixel) {
        const int grey = grey_of(pixel);
        for (int channel = 0; channel < 3; ++channel) pixel[channel] = blend(grey, pixel[channel], factor);
    });
}

void adjust_hue(const ImageView& image, double turn) {
    if (image.bytes_per_pixel == 1) return;
    const uint8_t shift = static_cast<uint8_t>(static_cast<int>(turn * 255));
    for_each_pixel(image, [shift](uint8_t* pixel) {
        uint8_t hsv[3];
        to_hsv(pixel, hsv);
        hsv[0] = static_cast<uint8_t>(hsv[0] + shift);
        from_hsv(hsv, pixel);
    });
}

void adjust_sharpness(const ImageView& image, double factor, Image& smooth) {
    // Pillow's SMOOTH: ones around a five, divided by 13 and rounded; pixels of the border stay, and blending changes none of them.
    const ImageView result = smooth.reshape(image.width, image.height, image.bytes_per_pixel);
    const ptrdiff_t step = image.bytes_per_pixel;
    for (int y = 0; y < image.height; ++y) std::memcpy(result.row(y), image.row(y), result.stride_bytes);
    for (int y = 1; y + 1 < image.height; ++y) {
        const uint8_t *above = result.row(y - 1), *here = result.row(y), *below = result.row(y + 1);
        uint8_t* to = image.row(y);
        for (ptrdiff_t index = step; index < step * (image.width - 1); ++index) {
            int sum = 4 * here[index];
            for (const uint8_t* row : {above, here, below}) sum += row[index - step] + row[index] + row[index + step];
            to[index] = blend((2 * sum + 13) / 26, here[index], static_cast<float>(factor));
        }
    }
}

void posterize(const ImageView& image, int bits) {
    map_all(image, [mask = ~((1 << (8 - bits)) - 1)](int value) { return value & mask; });
}

void solarize(const ImageView& image, double threshold) {
    map_all(image, [=](int value) { return value < threshold ? value : 255 - value; });
}

void autocontrast(const ImageView& image) {
    for (int channel = 0; channel < channels_of(image); ++channel) {
        const Histogram histogram = histogram_of(image, channel);
        int low = 0, high = 255;
        while (low < 255 && histogram[static_cast<size_t>(low)] == 0) ++low;
        while (high > 0 && histogram[static_cast<size_t>(high)] == 0) --high;
        if (high <= low) continue;
        const double scale = 255.0 / (high - low), offset = -low * scale;
        Table table;
        for (int value = 0; value < 256; ++value) {
            table[static_cast<size_t>(value)] = static_cast<uint8_t>(std::clamp(static_cast<int>(value * scale + offset), 0, 255));
        }
        look_up(image, channel, table);
    }
}

void equalize(const ImageView& image) {
    for (int channel = 0; channel < channels_of(image); ++channel) {
        const Histogram histogram = histogram_of(image, channel);
        int64_t pixels = 0, last = 0;
        for (const int64_t count : histogram) {
            pixels += count;
            if (count > 0) last = count;
        }
        const int64_t step = (pixels - last) / 255;
        if (step == 0) continue;
        Table table;
        int64_t sum = step / 2;
        for (size_t value = 0; value < 256; ++value) {
            table[value] = static_cast<uint8_t>(std::min<int64_t>(sum / step, 255));
            sum += histogram[value];
        }
        look_up(image, channel, table);
    }
}

}  // namespace lockstep
