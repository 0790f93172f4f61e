// libFuzzer target: the JPEG decoder and its plain twin, over all rows and over some. What both decode must have the same size.
#include <cstdint>
#include <optional>
#include <span>

#include "core/error.h"
#include "data_loader/jpeg_decoder.h"
#include "data_loader/plain_jpeg.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static JpegDecoder decoder;  // reused, as the loader does
    static PlainJpegDecoder plain;
    static Image image;
    const auto bytes = std::as_bytes(std::span(data, size));
    constexpr int64_t kMaxPixels = 1 << 18;  // keeps a run quick; larger ones differ in time only
    try {
        const ImageSize declared = decoder.open(bytes, "fuzz.jpg");
        if (int64_t{declared.width} * declared.height > kMaxPixels) return 0;
        const int first = size > 0 ? data[size - 1] % declared.height : 0;
        decoder.decode(first, declared.height - first, image);
        decoder.open(bytes, "fuzz.jpg");
        decoder.decode(0, declared.height, image);
        const std::optional<ImageSize> decoded = plain.decode(bytes);
        if (decoded && !(*decoded == declared)) __builtin_trap();
    } catch (const DataError&) {
    }
    return 0;
}
