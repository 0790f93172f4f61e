// Any sample to pixels: JPEG and PNG by content, and raw planar pixels.
#pragma once

#include <cstdint>

#include "data_loader/content_kind.h"
#include "data_loader/image.h"
#include "data_loader/jpeg_decoder.h"
#include "data_loader/png_decoder.h"
#include "data_loader/source.h"

namespace lockstep {

// Larger declared sizes are refused before memory is taken: a 200-byte file may claim anything.
constexpr int64_t kMaxImagePixels = int64_t{1} << 27;

// One per thread, reused. Order of use: open, then decode at most once.
class Decoder {
public:
    // Reads the header; the record stays valid until decode. DataError naming the record's key, and the detected kind when it is
    // neither JPEG nor PNG.
    ImageSize open(const Record& record);
    // How the opened record is stored.
    ContentKind kind() const;  // jpeg, png, or unknown for raw pixels
    Chroma chroma() const;     // none unless it is a JPEG

    // The pixels of request.box inside `out`. DataError for damage that touches them; request.shrink is for JPEG alone.
    ImageView decode(const DecodeRequest& request, Image& out);
    ImageView decode_all(ImageSize size, Image& out) {
        return decode({.box = {0, 0, size.width, size.height}, .everything = true}, out);
    }
    int64_t warnings() const { return jpeg_.warnings() + png_.warnings(); }

private:
    enum class Kind : uint8_t { none, jpeg, png, raw };

    JpegDecoder jpeg_;
    PngDecoder png_;
    Kind kind_ = Kind::none;
    const Record* record_ = nullptr;
};

}  // namespace lockstep
