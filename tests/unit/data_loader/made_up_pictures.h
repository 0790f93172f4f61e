// The pictures that the scripts in tests/golden draw, and their checksum of pixels.
#pragma once

#include "data_loader/image.h"

namespace lockstep {

inline ImageView picture(int width, int height, int bytes_per_pixel, Image& image) {
    const ImageView view = image.reshape(width, height, bytes_per_pixel);
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
            for (int c = 0; c < bytes_per_pixel; ++c) {
                view.row(y)[x * bytes_per_pixel + c] = static_cast<uint8_t>(x * 7 + y * 13 + c * 31 + int64_t{x} * y % 251);
            }
        }
    }
    return view;
}

class Checksum {
public:
    void add(uint64_t value) { sum_ += value * ++count_; }
    uint64_t sum() const { return sum_; }

private:
    uint64_t sum_ = 0, count_ = 0;
};

inline uint64_t checksum(const ImageView& view) {
    Checksum sum;
    for (int y = 0; y < view.height; ++y) {
        for (int x = 0; x < view.width; ++x) {
            for (int c = 0; c < (view.bytes_per_pixel == 1 ? 1 : 3); ++c) sum.add(view.row(y)[x * view.bytes_per_pixel + c]);
        }
    }
    return sum.sum();
}

}  // namespace lockstep
