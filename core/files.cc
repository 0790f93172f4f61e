#include "core/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_descriptor.h"

namespace lockstep {

namespace {

[[noreturn]] void throw_write_error(const fs::path& path, const fs::path& temporary, int error) {
    unlink(temporary.c_str());
    throw DeviceError(fmt::format("cannot write {}: {}; free space or choose another folder", path.string(), std::strerror(error)));
}

void write_all(int descriptor, std::string_view content, const fs::path& path, const fs::path& temporary) {
    while (!content.empty()) {
        const ssize_t written = write(descriptor, content.data(), content.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) throw_write_error(path, temporary, errno);
        content.remove_prefix(static_cast<size_t>(written));
    }
}

}  // namespace

std::string read_file(const fs::path& path) {
    const MappedFile file(path);
    if (!file.bytes().empty()) return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
    // The kernel's own files (/proc) say that they are empty and are not.
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

void write_file_atomically(const fs::path& path, std::string_view content) { write_file_atomically(path, {&content, 1}); }

void write_file_atomically(const fs::path& path, std::span<const std::string_view> parts) {
    const fs::path temporary = fmt::format("{}.tmp-{}", path.string(), getpid());
    const FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) throw_write_error(path, temporary, errno);
    for (const std::string_view part : parts) write_all(file.get(), part, path, temporary);
    if (fsync(file.get()) != 0) throw_write_error(path, temporary, errno);
    if (rename(temporary.c_str(), path.c_str()) != 0) throw_write_error(path, temporary, errno);
    const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
    const FileDescriptor folder(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() >= 0) fsync(folder.get());  // makes the rename itself durable
}

void make_directories(const fs::path& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) {
        throw DeviceError(
            fmt::format("cannot create folder {}: {}; check the path and its permissions", path.string(), error.message()));
    }
}

FolderLock::FolderLock(const fs::path& folder, int64_t patience_ms, std::string_view use) {
    const fs::path path = folder / ".lock";
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
        throw DeviceError(
            fmt::format("cannot open {}: {}; check the permissions of the folder", path.string(), std::strerror(errno)));
    }
    constexpr int64_t kPauseMs = 50;
    for (int64_t waited_ms = 0; flock(descriptor_, LOCK_EX | LOCK_NB) != 0; waited_ms += kPauseMs) {
        const int reason = errno;
        if (reason == EWOULDBLOCK && waited_ms < patience_ms) {
            std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
            continue;
        }
        close(std::exchange(descriptor_, -1));
        if (reason == ENOLCK || reason == ENOTSUP || reason == ENOSYS) return;  // a file system without locks: nothing to hold
        if (reason != EWOULDBLOCK) {
            throw DeviceError(fmt::format("cannot lock {}: {}; choose another folder", path.string(), std::strerror(reason)));
        }
        throw DeviceError(fmt::format("{} is in use: {}; wait for its end or choose another folder", folder.string(), use));
    }
}

FolderLock::~FolderLock() {
    if (descriptor_ >= 0) close(descriptor_);
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (file.get() < 0 || fstat(file.get(), &status) != 0) {
        throw DataError(fmt::format("cannot open {}: {}; check the path", path.string(), std::strerror(errno)));
    }
    if (!S_ISREG(status.st_mode)) throw DataError(fmt::format("{} is not a regular file; check the path", path.string()));
    size_ = static_cast<size_t>(status.st_size);
    if (size_ == 0) return;
    void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (data == MAP_FAILED) {
        throw DataError(fmt::format("cannot map {} ({} bytes): {}", path.string(), size_, std::strerror(errno)));
    }
    data_ = static_cast<const std::byte*>(data);
}

void MappedFile::will_need(std::span<const std::byte> part) {
    if (part.empty()) return;
    static const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(part.data()), end = begin + part.size();
    const uintptr_t first_page = begin / page_bytes * page_bytes;
    madvise(reinterpret_cast<void*>(first_page), end - first_page, MADV_WILLNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace lockstep
