// libjpeg-turbo's decode of a whole file with its own defaults and nothing around it: what every loader that uses the library pays
// at least. The yardstick of `lockstep bench loader`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "data_loader/image.h"

namespace lockstep {

// One per thread, reused for every image.
class PlainJpegDecoder {
public:
    PlainJpegDecoder();
    ~PlainJpegDecoder();
    PlainJpegDecoder(const PlainJpegDecoder&) = delete;
    PlainJpegDecoder& operator=(const PlainJpegDecoder&) = delete;

    // nullopt when the library refuses the file. Rows of RGB (grey 1 byte, inks 4 bytes a pixel) lie in pixels() until the next
    // call.
    std::optional<ImageSize> decode(std::span<const std::byte> file);
    std::span<const uint8_t> pixels() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lockstep
