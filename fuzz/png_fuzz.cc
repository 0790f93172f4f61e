// libFuzzer target: the PNG decoder.
#include <cstdint>
#include <span>

#include "core/error.h"
#include "data_loader/png_decoder.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static PngDecoder decoder;  // reused, as the loader does
    static Image image;
    constexpr int64_t kMaxPixels = 1 << 18;  // keeps a run quick
    try {
        const ImageSize declared = decoder.open(std::as_bytes(std::span(data, size)), "fuzz.png");
        if (int64_t{declared.width} * declared.height <= kMaxPixels) decoder.decode(image);
    } catch (const DataError&) {
    }
    return 0;
}
