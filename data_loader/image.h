// Decoded pixels: rows of 8-bit grey (1 byte a pixel) or RGBX (4 bytes a pixel, the last one unused: four-byte pixels keep the
// resize kernels simple and fast).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

struct ImageSize {
    int width = 0, height = 0;
    bool operator==(const ImageSize&) const = default;
};

// A rectangle in the pixels of some image.
struct CropBox {
    int x = 0, y = 0, width = 0, height = 0;
    bool operator==(const CropBox&) const = default;
};

// A rectangle of pixels inside an Image's buffer.
struct ImageView {
    uint8_t* pixels = nullptr;
    int width = 0, height = 0;
    int bytes_per_pixel = 4;  // 1 grey, 4 RGBX
    size_t stride_bytes = 0;  // from row to row

    uint8_t* row(int y) const { return pixels + static_cast<size_t>(y) * stride_bytes; }
    ImageView crop(const CropBox& box) const { return crop(box.x, box.y, box.width, box.height); }
    ImageView crop(int x, int y, int crop_width, int crop_height) const {
        return {row(y) + static_cast<size_t>(x) * static_cast<size_t>(bytes_per_pixel), crop_width, crop_height, bytes_per_pixel,
                stride_bytes};
    }
};

// Owns pixels; reshaping to a size seen before allocates nothing. A few more bytes follow the last pixel, so that vector code may
// read whole vectors.
class Image {
public:
    static constexpr size_t kSlackBytes = 32;

    // Contents are undefined afterwards.
    ImageView reshape(int width, int height, int bytes_per_pixel) {
        const size_t stride_bytes = static_cast<size_t>(width) * static_cast<size_t>(bytes_per_pixel);
        const size_t needed = stride_bytes * static_cast<size_t>(height);
        if (storage_.size() < needed + kSlackBytes) storage_.resize(needed + kSlackBytes);
        view_ = {storage_.data(), width, height, bytes_per_pixel, stride_bytes};
        return view_;
    }
    const ImageView& view() const { return view_; }

private:
    std::vector<uint8_t> storage_;
    ImageView view_;
};

}  // namespace lockstep
