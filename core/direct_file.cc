#include "core/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_descriptor.h"

namespace lockstep {

namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, int error) {
    unlink(path.c_str());
    throw DeviceError(fmt::format("cannot write {}: {}; free space or choose another folder with run.dir=PATH", path.string(),
                                  std::strerror(error)));
}

}  // namespace

void write_file_past_cache(const std::filesystem::path& path, std::span<const std::byte> content) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    constexpr size_t kPageBytes = 4096;
    int descriptor = open(path.c_str(), kFlags | O_DIRECT, 0644);
    if (descriptor < 0 && errno == EINVAL) descriptor = open(path.c_str(), kFlags, 0644);
    const FileDescriptor file(descriptor);
    if (file.get() < 0) refuse(path, errno);
    check(reinterpret_cast<uintptr_t>(content.data()) % kPageBytes == 0, "direct writes begin on a page border");
    // Whole pages; what the last one holds too much is cut off again.
    const std::string_view pages(reinterpret_cast<const char*>(content.data()),
                                 (content.size() + kPageBytes - 1) / kPageBytes * kPageBytes);
    for (size_t written = 0; written < pages.size();) {
        const std::string_view rest = pages.substr(written);
        const ssize_t got = write(file.get(), rest.data(), rest.size());
        if (got >= 0) written += static_cast<size_t>(got);
        if (got >= 0 || errno == EINTR) continue;
        const int flags = fcntl(file.get(), F_GETFL);
        const bool wants_other_borders = errno == EINVAL && (flags & O_DIRECT) != 0;
        if (!wants_other_borders) refuse(path, errno);
        fcntl(file.get(), F_SETFL, flags & ~O_DIRECT);
    }
    if (ftruncate(file.get(), static_cast<off_t>(content.size())) != 0) refuse(path, errno);
    if (fsync(file.get()) != 0) refuse(path, errno);
}

}  // namespace lockstep
