#include "data_loader/tar.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

constexpr uint64_t kBlockBytes = 512;
constexpr uint64_t kMaxExtraBytes = 1 << 20;  // of a long name or a pax header

struct Field {
    size_t offset, length;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 6}, kPrefix{345, 155};
constexpr size_t kTypeOffset = 156;

std::string_view text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string_view field(std::string_view header, Field place) { return header.substr(place.offset, place.length); }

std::string_view until_zero(std::string_view text) { return text.substr(0, text.find('\0')); }

// Octal digits, or base-256 when the top bit is set (GNU, for sizes of 8 GiB and more).
std::optional<uint64_t> parse_number(std::string_view text) {
    if (!text.empty() && (static_cast<unsigned char>(text[0]) & 0x80U) != 0) {
        uint64_t value = static_cast<unsigned char>(text[0]) & 0x7FU;
        for (const char digit : text.substr(1)) {
            if (value >> 55 != 0) return std::nullopt;
            value = value << 8 | static_cast<unsigned char>(digit);
        }
        return value;
    }
    const size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) return std::nullopt;
    text = text.substr(begin, text.find_first_of(std::string_view(" \0", 2), begin) - begin);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

bool checksum_fits(std::string_view header) {
    const std::optional<uint64_t> stored = parse_number(field(header, kChecksum));
    uint64_t sum = 0;
    for (size_t index = 0; index < header.size(); ++index) {
        const bool own = index >= kChecksum.offset && index < kChecksum.offset + kChecksum.length;
        sum += own ? ' ' : static_cast<unsigned char>(header[index]);
    }
    return stored == sum;
}

bool is_zero(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char byte) { return byte == 0; });
}

std::string member_name(std::string_view header) {
    const std::string_view name = until_zero(field(header, kName));
    if (!field(header, kMagic).starts_with("ustar")) return std::string(name);
    const std::string_view prefix = until_zero(field(header, kPrefix));
    // GNU's own magic is "ustar  "; it keeps other things where ustar has the prefix.
    if (prefix.empty() || field(header, kMagic) == "ustar ") return std::string(name);
    return fmt::format("{}/{}", prefix, name);
}

class Reader {
public:
    Reader(std::span<const std::byte> bytes, const std::filesystem::path& path) : text_(text_of(bytes)), path_(path) {}

    TarIndex read() {
        if (text_.empty()) throw DataError(fmt::format("{}: an empty file is not a tar; make it again", path_.string()));
        while (read_member()) {
        }
        check_rest();
        return std::move(index_);
    }

private:
    [[noreturn]] void fail(std::string_view reason) const {
        throw DataError(fmt::format("{}: record {} at offset {}: {}; the tar is damaged, copy or make it again", path_.string(),
                                    record_, offset_, reason));
    }
    uint64_t remaining() const { return text_.size() - offset_; }

    bool read_member();  // false at the end mark
    void read_extra(char type, std::string_view body);
    void read_pax(std::string_view body);
    void add(char type, std::string_view header, uint64_t size);
    void check_rest() const;

    std::string_view text_;
    const std::filesystem::path& path_;
    TarIndex index_;
    uint64_t offset_ = 0;
    int64_t record_ = 0;
    std::string long_name_;             // for the next member, from GNU or pax
    std::optional<uint64_t> pax_size_;  // likewise
};

bool Reader::read_member() {
    if (remaining() < kBlockBytes) {
        fail(remaining() == 0 ? "the file ends without the end mark" : "the file ends inside a header");
    }
    const std::string_view header = text_.substr(offset_, kBlockBytes);
    if (is_zero(header)) return false;
    if (!checksum_fits(header)) fail("wrong header checksum");
    const char type = header[kTypeOffset];
    std::optional<uint64_t> size = parse_number(field(header, kSize));
    const bool extra = type == 'L' || type == 'K' || type == 'x' || type == 'g';
    if (pax_size_ && !extra) size = pax_size_;
    if (!size) fail("the member's length is not a number");
    if (type >= '1' && type <= '6') size = 0;  // links, devices and folders carry no data
    if (*size > remaining() - kBlockBytes) {
        fail(fmt::format("the member claims {} bytes, {} remain", *size, remaining() - kBlockBytes));
    }
    if (extra) {
        if (*size > kMaxExtraBytes) fail(fmt::format("an extended header claims {} bytes", *size));
        read_extra(type, text_.substr(offset_ + kBlockBytes, *size));
    } else {
        add(type, header, *size);
        long_name_.clear();
        pax_size_.reset();
    }
    const uint64_t padded = (*size + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    if (padded > remaining() - kBlockBytes) fail("the file ends inside a member");
    offset_ += kBlockBytes + padded;
    ++record_;
    return true;
}

void Reader::read_extra(char type, std::string_view body) {
    if (type == 'L') long_name_ = until_zero(body);
    if (type == 'x') read_pax(body);
}

// Lines "LENGTH KEY=VALUE\n" where LENGTH counts the whole line.
void Reader::read_pax(std::string_view body) {
    while (!body.empty() && body[0] != '\0') {
        uint64_t length = 0;
        const auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), length);
        const size_t digits = static_cast<size_t>(end - body.data());
        if (error != std::errc() || length > body.size() || length < digits + 3 || body[digits] != ' ' ||
            body[length - 1] != '\n') {
            fail("a broken pax header");
        }
        const std::string_view entry = body.substr(digits + 1, length - digits - 2);
        const size_t equals = entry.find('=');
        if (equals == std::string_view::npos) fail("a broken pax header");
        const std::string_view key = entry.substr(0, equals), value = entry.substr(equals + 1);
        if (key == "path") long_name_ = value;
        if (key == "size") {
            uint64_t size = 0;
            const auto [value_end, value_error] = std::from_chars(value.data(), value.data() + value.size(), size);
            if (value_error != std::errc() || value_end != value.data() + value.size()) fail("a pax size that is not a number");
            pax_size_ = size;
        }
        if (key.starts_with("GNU.sparse.")) fail("sparse members are not supported");
        body.remove_prefix(length);
    }
}

void Reader::add(char type, std::string_view header, uint64_t size) {
    if (type == '5') return;
    if (type == 'S' || type == 'M') fail("sparse and multi-volume members are not supported");
    if (type != '0' && type != '\0' && type != '7') {
        ++index_.skipped;
        return;
    }
    std::string name = long_name_.empty() ? member_name(header) : long_name_;
    if (name.starts_with("./")) name.erase(0, 2);
    if (name.ends_with('/')) return;  // an old tar's way to write a folder
    if (name.empty()) fail("a member without a name");
    index_.members.push_back({std::move(name), offset_ + kBlockBytes, size});
}

// After the end mark only zeros may follow: two tars written one after the other would hide the second.
void Reader::check_rest() const {
    if (!is_zero(text_.substr(offset_))) fail("data after the end mark (several tars in one file are not supported)");
}

}  // namespace

TarIndex read_tar_index(std::span<const std::byte> bytes, const std::filesystem::path& path) { return Reader(bytes, path).read(); }

bool looks_like_tar(std::span<const std::byte> bytes) {
    return bytes.size() >= kBlockBytes && !is_zero(text_of(bytes.first(kBlockBytes))) &&
           checksum_fits(text_of(bytes.first(kBlockBytes)));
}

bool is_tar_member(std::span<const std::byte> bytes, uint64_t offset, uint64_t size) {
    if (offset < kBlockBytes || offset > bytes.size() || size > bytes.size() - offset) return false;
    const std::string_view header = text_of(bytes.subspan(offset - kBlockBytes, kBlockBytes));
    return !is_zero(header) && checksum_fits(header) && parse_number(field(header, kSize)) == size;
}

}  // namespace lockstep
