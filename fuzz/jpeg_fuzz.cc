// libFuzzer target: the JPEG decoder and its plain twin, whole, and over boxes with and without shrinking. What both decode must
// have the same size.
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
        const auto choice = [&](size_t from_end) { return size > from_end ? static_cast<int>(data[size - 1 - from_end]) : 0; };
        const int x = choice(0) % declared.width, y = choice(1) % declared.height;
        decoder.decode({.box = {x, y, declared.width - x, declared.height - y}, .shrink = 1 << choice(2) % 4}, image);
        decoder.open(bytes, "fuzz.jpg");
        decoder.decode({.box = {0, 0, declared.width, declared.height}, .everything = true}, image);
        const std::optional<ImageSize> decoded = plain.decode(bytes);
        if (decoded && !(*decoded == declared)) __builtin_trap();
    } catch (const DataError&) {
    }
    return 0;
}
