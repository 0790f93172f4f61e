// FFCV's .beton files of version 2, without a copy. All numbers are little-endian:
//   head     version, fields (2 bytes each), page size (4), samples, offset of the allocation table (8 each): 24 bytes
//   fields   per field its type (1), name (16), arguments (1024): 1041 bytes
//   samples  per sample its fields one after another, aligned as a C compiler would: a float or an integer is 8 bytes, a picture
//   13:
//            mode (1; 0: JPEG, 1: raw rows of RGB), width, height (2 each), offset (8)
//   data     on pages of the given size
//   table    per piece of data its sample, offset and size (8 each), to the end of the file
// https://github.com/libffcv/ffcv, ffcv/types.py
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace lockstep {

struct BetonSample {
    bool raw = false;  // rows of RGB; else a JPEG file
    int width = 0, height = 0;
    std::span<const std::byte> data;  // inside the file
    uint64_t offset = 0;              // of the sample's fields
    int64_t label = 0;
};

// The picture is the one field of pictures, or else that named image, img or x; the label the one integer, or else that named
// label, class, cls, target or y. DataError with path, record and offset for whatever does not fit.
std::vector<BetonSample> read_beton(std::span<const std::byte> file, const std::filesystem::path& path);

}  // namespace lockstep
