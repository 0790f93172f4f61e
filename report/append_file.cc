#include "report/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

[[noreturn]] void throw_refused(const std::filesystem::path& path, int error) {
    throw DeviceError(fmt::format("cannot write {}: {}; free space or choose another folder with run.dir=PATH", path.string(),
                                  std::strerror(error)));
}

}  // namespace

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(path), descriptor_(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) throw_refused(path_, errno);
    good_bytes_ = lseek(descriptor_, 0, SEEK_END);
}

AppendFile::~AppendFile() { close(descriptor_); }

void AppendFile::append(std::span<const char> piece) {
    size_t done = 0;
    while (done < piece.size()) {
        const ssize_t written = write(descriptor_, piece.data() + done, piece.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            const int error = written < 0 ? errno : ENOSPC;
            // A reader drops a torn tail anyway, so a refused cut changes nothing.
            if (ftruncate(descriptor_, good_bytes_) == 0) lseek(descriptor_, good_bytes_, SEEK_SET);
            throw_refused(path_, error);
        }
        done += static_cast<size_t>(written);
    }
    good_bytes_ += static_cast<int64_t>(piece.size());
}

}  // namespace lockstep
