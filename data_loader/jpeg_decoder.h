// JPEG to pixels with libjpeg-turbo: exact (slow integer DCT, smooth upsampling), the same pixels as Pillow's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "data_loader/image.h"

namespace lockstep {

// How colour is sampled: not at all (grey), 4:2:0, 4:4:4, anything else.
enum class Chroma : uint8_t { none, half, full, other };

// What is wanted of an image.
struct DecodeRequest {
    CropBox box;              // in the pixels of the stored image
    int shrink = 1;           // JPEG only: 2, 4 or 8: the inverse DCT gives an image of a half, a quarter, an eighth (rounded up)
    bool everything = false;  // decode all rows and columns, so that damage is found wherever it is
};

// One per thread, reused for every image. Order of use: open, then decode at most once.
class JpegDecoder {
public:
    JpegDecoder();
    ~JpegDecoder();
    JpegDecoder(const JpegDecoder&) = delete;
    JpegDecoder& operator=(const JpegDecoder&) = delete;

    // Reads the header. `bytes` must stay valid until decode returns. DataError (naming `name`) for a damaged header and for
    // dimensions above the cap, before any pixel memory is taken.
    ImageSize open(std::span<const std::byte> bytes, std::string_view name);

    Chroma chroma() const;  // of the opened image

    // The pixels of request.box in `out`, as a view of exactly these: grey files give 1 byte a pixel, all others RGBX. They are the
    // same pixels that a full decode gives; what cannot change them costs less or nothing. With request.shrink: the part of the
    // shrunk image that covers the box. Four-component files are inks: inverted ones (Adobe's marker) and plain ones both come out
    // as the right colours. DataError when pixels are missing; a file that lacks only its end marker is whole. A file that may have
    // lost its end is always decoded to the last row so that the verdict does not depend on the box.
    ImageView decode(const DecodeRequest& request, Image& out);

    int64_t warnings() const;  // so far, of all images: damaged spots whose pixels were kept

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lockstep
