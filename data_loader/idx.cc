#include "data_loader/idx.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <zlib.h>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"

namespace lockstep {

namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr int64_t kMaxValues = int64_t{1} << 34;
constexpr unsigned kUnsignedByte = 8;

bool is_gzip(std::span<const std::byte> file) {
    return file.size() >= 2 && file[0] == std::byte{0x1F} && file[1] == std::byte{0x8B};
}

// Bytes in order, from the file itself or through zlib.
class ByteReader {
public:
    ByteReader(std::span<const std::byte> file, const std::filesystem::path& path)
        : file_(file), path_(path), gzip_(is_gzip(file)) {
        if (!gzip_) return;
        // 16 + 15: gzip with the largest window.
        check(inflateInit2(&stream_, 16 + 15) == Z_OK, "zlib cannot start");
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(file.data()));
    }
    ByteReader(const ByteReader&) = delete;
    ByteReader& operator=(const ByteReader&) = delete;
    ~ByteReader() {
        if (gzip_) inflateEnd(&stream_);
    }

    // Fewer than asked for only at the end.
    size_t read(std::span<std::byte> out) {
        const size_t count = gzip_ ? inflate_some(out) : copy_some(out);
        offset_ += count;
        return count;
    }
    uint64_t offset() const { return offset_; }

private:
    size_t copy_some(std::span<std::byte> out) {
        const size_t count = std::min(out.size(), file_.size() - offset_);
        if (count > 0) std::memcpy(out.data(), file_.data() + offset_, count);
        return count;
    }
    size_t inflate_some(std::span<std::byte> out) {
        stream_.next_out = reinterpret_cast<Bytef*>(out.data());
        stream_.avail_out = static_cast<uInt>(out.size());
        while (stream_.avail_out > 0 && !ended_) {
            const size_t fed = static_cast<size_t>(reinterpret_cast<const std::byte*>(stream_.next_in) - file_.data());
            stream_.avail_in = static_cast<uInt>(std::min<size_t>(file_.size() - fed, kChunkBytes));
            const int status = inflate(&stream_, Z_NO_FLUSH);
            if (status == Z_STREAM_END) {
                ended_ = true;
            } else if (status != Z_OK) {
                const bool cut = status == Z_BUF_ERROR;
                throw DataError(fmt::format("{}: gzip data {} at offset {} of {}; copy the file again", path_.string(),
                                            cut ? "ends too early" : "is damaged",
                                            reinterpret_cast<const std::byte*>(stream_.next_in) - file_.data(), file_.size()));
            }
        }
        return out.size() - stream_.avail_out;
    }

    std::span<const std::byte> file_;
    const std::filesystem::path& path_;
    bool gzip_;
    bool ended_ = false;
    uint64_t offset_ = 0;
    z_stream stream_{};
};

struct Header {
    std::vector<int64_t> dimensions;
    int64_t value_count = 0;
};

uint32_t big_endian(const std::byte* bytes) {
    uint32_t value = 0;
    for (int index = 0; index < 4; ++index) value = value << 8 | std::to_integer<uint32_t>(bytes[index]);
    return value;
}

Header read_header(ByteReader& reader, const std::filesystem::path& path) {
    std::byte word[4] = {};
    const auto next = [&](const char* what) {
        if (reader.read(word) < sizeof word) {
            throw DataError(
                fmt::format("{}: the file ends at offset {} inside the {}; copy it again", path.string(), reader.offset(), what));
        }
        return big_endian(word);
    };
    const uint32_t magic = next("magic number");
    const uint32_t rank = magic & 0xFFU;
    if (magic >> 8 != kUnsignedByte || rank < 1 || rank > 4) {
        throw DataError(
            fmt::format("{}: offset 0: magic number 0x{:08x} is not that of an idx file of bytes (0x0000080N); check the "
                        "path",
                        path.string(), magic));
    }
    Header header{.value_count = 1};
    for (uint32_t dimension = 0; dimension < rank; ++dimension) {
        const int64_t length = next("dimensions");
        header.dimensions.push_back(length);
        if (length == 0 || header.value_count > kMaxValues / length) {
            throw DataError(fmt::format("{}: offset {}: impossible dimension {}; copy the file again", path.string(),
                                        reader.offset() - 4, length));
        }
        header.value_count *= length;
    }
    return header;
}

}  // namespace

IdxArray parse_idx(std::span<const std::byte> file, const std::filesystem::path& path) {
    ByteReader reader(file, path);
    const Header header = read_header(reader, path);
    const size_t expected = static_cast<size_t>(header.value_count);
    IdxArray array{.dimensions = header.dimensions, .values = {}};
    while (array.values.size() < expected) {
        const size_t before = array.values.size();
        array.values.resize(std::min(expected, before + kChunkBytes));
        const size_t got = reader.read(std::span(array.values).subspan(before));
        if (before + got < array.values.size()) {
            throw DataError(
                fmt::format("{}: the header claims {} bytes of data, only {} are there (the file ends at offset {}); copy "
                            "it again",
                            path.string(), expected, before + got, reader.offset()));
        }
    }
    std::byte extra[1];
    if (reader.read(extra) != 0) {
        throw DataError(fmt::format("{}: data goes on after the {} bytes the header claims (offset {}); wrong file or wrong header",
                                    path.string(), expected, reader.offset() - 1));
    }
    return array;
}

IdxArray read_idx(const std::filesystem::path& path) {
    const MappedFile file(path);
    return parse_idx(file.bytes(), path);
}

bool looks_like_idx_images(std::span<const std::byte> file) {
    try {
        ByteReader reader(file, "");
        std::byte word[4] = {};
        return reader.read(word) == sizeof word && big_endian(word) == (kUnsignedByte << 8 | 3);
    } catch (const DataError&) {
        return false;
    }
}

}  // namespace lockstep
