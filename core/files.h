// Files: whole reads, memory maps, and writes that exist only when complete.
#pragma once

#include <cstddef>
#include <cstdint>
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

// Holds a folder for one process, by an advisory lock on a file in it that the kernel drops when the process ends, however it ends.
class FolderLock {
public:
    // Waits up to `patience_ms` for a holder that is just ending, then throws DeviceError. `use` says in the message what for.
    FolderLock(const fs::path& folder, int64_t patience_ms, std::string_view use);
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;
    ~FolderLock();

private:
    int descriptor_ = -1;
};

// A read-only map of a whole file. Pages come from the page cache: cheap to open, no copy. Throws DataError.
class MappedFile {
public:
    explicit MappedFile(const fs::path& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    // Asks the system to read a part of any map soon. Does not wait; does nothing where the system will not.
    static void will_need(std::span<const std::byte> part);
    const fs::path& path() const { return path_; }

private:
    fs::path path_;
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace lockstep
