// PNG to pixels with libpng. Every kind becomes 8 bits: palettes and 1, 2, 4-bit greys are expanded, of 16 bits the upper 8 are
// kept. Transparency is dropped: the stored colour counts, whatever its alpha (the rule of Pillow's convert("RGB"), hence of
// torchvision's loader), in training and prediction alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "data_loader/image.h"

namespace lockstep {

// One per thread, reused. Same use as JpegDecoder; always decodes the whole image.
class PngDecoder {
public:
    PngDecoder();
    ~PngDecoder();
    PngDecoder(const PngDecoder&) = delete;
    PngDecoder& operator=(const PngDecoder&) = delete;

    ImageSize open(std::span<const std::byte> bytes, std::string_view name);
    void decode(Image& out);   // DataError for missing pixels and for a wrong checksum
    int64_t warnings() const;  // so far, of all images

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lockstep
