// Large files that are written once and not read soon.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep {

// Writes and syncs a file under `path` itself, past the page cache where the file system allows it: large files then cost the
// processor next to nothing and push nothing out of the cache. `content` begins on a page border and lies in pages of its own (a
// HeapPool's buffer does). On failure throws DeviceError and removes the file.
void write_file_past_cache(const std::filesystem::path& path, std::span<const std::byte> content);

}  // namespace lockstep
