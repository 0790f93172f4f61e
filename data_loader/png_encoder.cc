#include "data_loader/png_encoder.h"

#include <png.h>

#include "core/error.h"

namespace lockstep {

void encode_png(const ImageView& image, std::vector<uint8_t>& file) {
    const size_t channels = image.bytes_per_pixel == 1 ? 1 : 3;
    std::vector<uint8_t> pixels;
    pixels.reserve(static_cast<size_t>(image.width) * static_cast<size_t>(image.height) * channels);
    for (int y = 0; y < image.height; ++y) {
        const uint8_t* row = image.row(y);
        for (int x = 0; x < image.width; ++x, row += image.bytes_per_pixel) pixels.insert(pixels.end(), row, row + channels);
    }
    png_image library{};
    library.version = PNG_IMAGE_VERSION;
    library.width = static_cast<png_uint_32>(image.width);
    library.height = static_cast<png_uint_32>(image.height);
    library.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(library);
    file.resize(bytes);
    // Memory is the only thing that could fail: the buffer holds the worst case.
    check(png_image_write_to_memory(&library, file.data(), &bytes, 0, pixels.data(), 0, nullptr) != 0, "libpng cannot encode");
    file.resize(bytes);
}

}  // namespace lockstep
