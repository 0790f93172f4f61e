// A file that only grows by whole pieces: a piece that does not fit is cut away again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace lockstep {

class AppendFile {
public:
    explicit AppendFile(const std::filesystem::path& path);  // opens or creates, appends at the end; DeviceError
    AppendFile(const AppendFile&) = delete;
    AppendFile& operator=(const AppendFile&) = delete;
    ~AppendFile();

    // All of it or nothing; allocates nothing unless it fails. Throws DeviceError naming file and reason.
    void append(std::span<const char> piece);
    void append(std::string_view piece) { append(std::span<const char>(piece.data(), piece.size())); }

private:
    std::filesystem::path path_;
    int descriptor_ = -1;
    int64_t good_bytes_ = 0;  // end of the last whole piece
};

}  // namespace lockstep
