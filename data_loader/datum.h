// Caffe's Datum: a picture with its label as a protocol buffer, raw (planar 8-bit pixels) or an encoded file.
// message Datum { channels = 1, height = 2, width = 3: int64; data = 4: bytes; label = 5: int64; float_data = 6; encoded = 7: bool
// }
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lockstep {

struct Datum {
    bool encoded = false;                     // `data` is a file such as a JPEG
    int channels = 0, height = 0, width = 0;  // raw only: 1 or 3 channels
    std::span<const std::byte> data;          // inside the message
    int64_t label = 0;
};

// nullopt for what is no Datum, has no label, holds floats in place of bytes, or whose sizes and bytes disagree.
std::optional<Datum> parse_datum(std::span<const std::byte> message);

}  // namespace lockstep
