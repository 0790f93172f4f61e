// The values of an LMDB file (data.mdb), in the order of their keys and without a copy. Read here page by page with every offset
// checked, because the library trusts its files: damage there ends in a signal, not in an error.
//
// Pages of one size follow each other; all numbers are little-endian. Pages 0 and 1 describe the file, and the one with the higher
// transaction number counts. The main tree's pages are branches (children) or leaves (keys and values); a large value lies on
// overflow pages of its own. http://www.lmdb.tech/doc/ and lmdb.h of version 0.9, on machines of 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace lockstep {

bool looks_like_lmdb(std::span<const std::byte> file);

// DataError naming `path`, page and offset for whatever does not fit: pages and values outside the file or inside each other, trees
// deeper or larger than the file can hold, another number of values than the file says, duplicate keys, named databases.
std::vector<std::span<const std::byte>> read_lmdb_values(std::span<const std::byte> file, const std::filesystem::path& path);

}  // namespace lockstep
