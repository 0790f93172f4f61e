#include "data_loader/shard_writer.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"

namespace lockstep {

namespace {

constexpr size_t kBlockBytes = 512;
constexpr uint64_t kMaxOctalBytes = uint64_t{1} << 33;  // eleven octal digits

uint64_t padded(uint64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes; }

// A ustar header (POSIX.1-1988): name, mode, owner 0, size, time 0, checksum, an ordinary file.
std::array<char, kBlockBytes> header_of(const std::string& name, uint64_t size) {
    check(name.size() < 100 && size < kMaxOctalBytes, "ShardWriter: a name or picture too long for ustar");
    std::array<char, kBlockBytes> header{};
    const auto put = [&header](size_t offset, std::string_view text) {
        std::memcpy(header.data() + offset, text.data(), text.size());
    };
    put(0, name);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, fmt::format("{:011o}", size));
    put(136, "00000000000");
    put(148, "        ");
    header[156] = '0';
    put(257, std::string_view("ustar\00000", 8));
    unsigned sum = 0;
    for (const char byte : header) sum += static_cast<unsigned char>(byte);
    put(148, fmt::format("{:06o}", sum));
    header[154] = '\0';
    return header;
}

}  // namespace

ShardWriter::ShardWriter(const fs::path& path) : path_(path), temporary_(path.string() + ".tmp") {
    file_.reset(std::fopen(temporary_.c_str(), "wb"));
    if (!file_) fail();
}

ShardWriter::~ShardWriter() {
    if (!finished_) unlink(temporary_.c_str());
}

void ShardWriter::fail() const {
    throw DeviceError(
        fmt::format("cannot write {}: {}; free space or choose another folder", temporary_.string(), std::strerror(errno)));
}

void ShardWriter::write(const void* data, size_t size) {
    if (size > 0 && std::fwrite(data, 1, size, file_.get()) != size) fail();
    bytes_ += size;
}

uint64_t ShardWriter::add_member(const std::string& name, std::span<const std::byte> content) {
    static constexpr std::array<char, kBlockBytes> kZeros{};
    const std::array<char, kBlockBytes> header = header_of(name, content.size());
    write(header.data(), header.size());
    const uint64_t offset = bytes_;
    write(content.data(), content.size());
    write(kZeros.data(), padded(content.size()) - content.size());
    return offset;
}

void ShardWriter::add(const std::string& key, std::string_view suffix, std::span<const std::byte> picture, int32_t label,
                      ImageSize size) {
    const std::string name = fmt::format("{}.{}", key, suffix);
    const uint64_t offset = add_member(name, picture);
    const std::string text = fmt::format("{}", label);
    add_member(key + ".cls", std::as_bytes(std::span(text.data(), text.size())));
    index_.add(name, {.offset = offset,
                      .bytes = picture.size(),
                      .hash = hash_bytes(picture.data(), picture.size()),
                      .label = label,
                      .width = static_cast<uint32_t>(size.width),
                      .height = static_cast<uint32_t>(size.height)});
}

void ShardWriter::finish() {
    const std::array<char, 2 * kBlockBytes> end{};
    write(end.data(), end.size());
    if (std::fflush(file_.get()) != 0 || fsync(fileno(file_.get())) != 0) fail();
    file_.reset();
    index_.tar_bytes = bytes_;
    index_.has_contents = true;
    write_file_atomically(shard_index_path(path_), encode(index_));
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
    finished_ = true;
}

uint64_t ShardWriter::bytes_of_sample(uint64_t picture_bytes) { return 3 * kBlockBytes + padded(picture_bytes); }

}  // namespace lockstep
