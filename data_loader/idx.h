// The idx format of MNIST and its relatives: big-endian magic (0, 0, type 8 = unsigned byte, rank), dimensions, bytes. Gzipped or
// not, told apart by content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace lockstep {

struct IdxArray {
    std::vector<int64_t> dimensions;
    std::vector<std::byte> values;
};

// DataError naming `path` and the offset: wrong magic, dimensions that do not fit the bytes (both ways), damaged gzip. Memory grows
// with the bytes really there, never by what a header claims.
IdxArray parse_idx(std::span<const std::byte> file, const std::filesystem::path& path);
IdxArray read_idx(const std::filesystem::path& path);

// Images (rank 3) by content, looking only at the beginning.
bool looks_like_idx_images(std::span<const std::byte> file);

}  // namespace lockstep
