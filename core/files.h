// Files: whole reads, memory maps, and writes that exist only when complete.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

namespace fs = std::filesystem;

// Throws DataError naming the path and the reason.
std::string read_file(const fs::path& path);

// Writes to a temporary name in the same folder, syncs and renames: under the final name the file is always whole. On failure
// (full disk, permission) throws DeviceError and leaves any earlier file untouched and no temporary behind.
void write_file_atomically(const fs::path& path, std::string_view content);
// The same for a file that is put together from parts, which are written one after another without being copied.
void write_file_atomically(const fs::path& path, std::span<const std::string_view> parts);

// Creates the folder and its parents; no error when it exists. Throws DeviceError.
void make_directories(const fs::path& path);

// A read-only map of a whole file. Pages come from the page cache: cheap to open, no copy. Throws DataError.
class MappedFile {
public:
    explicit MappedFile(const fs::path& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const fs::path& path() const { return path_; }

private:
    fs::path path_;
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace lockstep
