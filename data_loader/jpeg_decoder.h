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

    // Rows [first_row, first_row + row_count) of the opened image into `out` (which then has row_count rows): grey files give
    // 1 byte a pixel, all others RGBX. Four-component files are inks: inverted ones (Adobe's marker) and plain ones both come out
    // as the right colours. DataError when pixels are missing; a file that lacks only its end marker is whole. Rows outside the
    // range cost less; a file that may have lost its end is always decoded to the last row so that the verdict does not depend on
    // the rows asked for.
    void decode(int first_row, int row_count, Image& out);

    int64_t warnings() const;  // so far, of all images: damaged spots whose pixels were kept

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lockstep
