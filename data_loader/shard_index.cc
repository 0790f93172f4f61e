#include "data_loader/shard_index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"
#include "data_loader/decoder.h"
#include "data_loader/sources/sources.h"
#include "data_loader/tar.h"

namespace lockstep {

namespace {

static_assert(std::endian::native == std::endian::little, "the index is written as it lies in memory");

struct Header {
    char magic[8] = {'l', 'k', 's', 't', 'e', 'p', 'i', 'x'};
    uint32_t version = 1;
    uint32_t entry_bytes = sizeof(ShardEntry);
    uint64_t tar_bytes = 0, entry_count = 0, name_bytes = 0, ignored = 0, has_contents = 0;
};
static_assert(sizeof(ShardEntry) == 40 && sizeof(Header) == 56);
constexpr size_t kChecksumBytes = 8;  // XXH3 of all that stands before it, at the end

struct KeyAndField {
    std::string_view key, field;
};

KeyAndField split(std::string_view name) {
    const size_t base = name.rfind('/') == std::string_view::npos ? 0 : name.rfind('/') + 1;
    const size_t dot = name.find('.', base);
    if (dot == std::string_view::npos || dot == base) return {};  // no field, or hidden
    return {name.substr(0, dot), name.substr(dot + 1)};
}

std::string_view trim(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// Members to samples.
class Scan {
public:
    Scan(std::span<const std::byte> tar, const fs::path& path) : tar_(tar), path_(path) {}

    ShardIndex run() {
        const TarIndex members = read_tar_index(tar_, path_);
        index_.tar_bytes = tar_.size();
        index_.ignored = members.skipped;
        Group group;
        for (const TarMember& member : members.members) {
            const auto [key, field] = split(member.name);
            if (key.empty()) {
                ++index_.ignored;
                continue;
            }
            if (key != group.key) {
                finish(group);
                group = {.key = key};
            }
            add_member(group, member, field);
        }
        finish(group);
        return std::move(index_);
    }

private:
    // One sample while its members are being collected.
    struct Group {
        std::string_view key;
        const TarMember* image = nullptr;
        const TarMember* label = nullptr;
    };

    void add_member(Group& group, const TarMember& member, std::string_view field) {
        const bool is_image = field.find('.') == std::string_view::npos && has_image_suffix(member.name);
        if (!is_image && field != "cls") {
            ++index_.ignored;
            return;
        }
        const TarMember*& place = is_image ? group.image : group.label;
        if (place != nullptr) fail(member, fmt::format("sample \"{}\" already has {}", group.key, place->name));
        place = &member;
    }

    void finish(const Group& group) {
        if (group.image == nullptr && group.label == nullptr) return;
        if (group.label == nullptr) fail(*group.image, "the sample has an image but no cls field");
        if (group.image == nullptr) fail(*group.label, "the sample has a label but no jpg, jpeg or png field");
        const auto bytes = tar_.subspan(group.label->offset, std::min<uint64_t>(group.label->size, 64));
        const std::string_view text = trim({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        const std::optional<int32_t> label = parse_label(text, kMaxClasses);
        if (!label) fail(*group.label, fmt::format("label \"{}\" is not an integer in [0, {}]", text, kMaxClasses - 1));
        index_.add(group.image->name, {.offset = group.image->offset, .bytes = group.image->size, .label = *label});
    }

    [[noreturn]] void fail(const TarMember& member, std::string_view reason) const {
        throw DataError(fmt::format("{}: member {} at offset {} (record {}): {}; repair the shard", path_.string(), member.name,
                                    member.offset, index_.entries().size(), reason));
    }

    std::span<const std::byte> tar_;
    const fs::path& path_;
    ShardIndex index_;
};

}  // namespace

void ShardIndex::add(std::string_view name, ShardEntry entry) {
    names_ += name;
    entry.name_end = static_cast<uint32_t>(names_.size());
    check(names_.size() == entry.name_end, "more than 4 GiB of names in one shard");
    entries_.push_back(entry);
}

std::string_view ShardIndex::name(size_t index) const {
    const size_t begin = index == 0 ? 0 : entries_[index - 1].name_end;
    return std::string_view(names_).substr(begin, entries_[index].name_end - begin);
}

fs::path shard_index_path(const fs::path& shard) { return shard.string() + ".idx"; }

ShardIndex scan_shard(std::span<const std::byte> tar, const fs::path& path) { return Scan(tar, path).run(); }

void read_contents(std::span<const std::byte> tar, const fs::path& path, ShardIndex& index) {
    Decoder decoder;
    Record record{.key = path.string()};
    for (ShardEntry& entry : index.entries()) {
        record.bytes = tar.subspan(entry.offset, entry.bytes);
        entry.hash = hash_bytes(record.bytes.data(), record.bytes.size());
        ImageSize size;
        try {
            size = decoder.open(record);
        } catch (const DataError&) {  // 0x0 stands for it; `data verify` names it
        }
        entry.width = static_cast<uint32_t>(size.width);
        entry.height = static_cast<uint32_t>(size.height);
    }
    index.has_contents = true;
}

std::string encode(const ShardIndex& index) {
    const Header header{.tar_bytes = index.tar_bytes,
                        .entry_count = index.entries().size(),
                        .name_bytes = index.names().size(),
                        .ignored = static_cast<uint64_t>(index.ignored),
                        .has_contents = index.has_contents ? 1U : 0U};
    std::string text(reinterpret_cast<const char*>(&header), sizeof header);
    text.append(reinterpret_cast<const char*>(index.entries().data()), index.entries().size() * sizeof(ShardEntry));
    text += index.names();
    const uint64_t checksum = hash_text(text);
    text.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
    return text;
}

ShardIndex parse_shard_index(std::span<const std::byte> bytes, const fs::path& path) {
    const auto fail = [&path](std::string_view reason) {
        throw DataError(fmt::format("{}: {}; make it again with `lockstep data index`", path.string(), reason));
    };
    Header header;
    const Header own;
    if (bytes.size() < sizeof header + kChecksumBytes) fail(fmt::format("{} bytes are no side index", bytes.size()));
    std::memcpy(&header, bytes.data(), sizeof header);
    if (std::memcmp(header.magic, own.magic, sizeof header.magic) != 0) fail("no side index: wrong first bytes");
    if (header.version != own.version || header.entry_bytes != own.entry_bytes) {
        fail(fmt::format("side index of version {}, this program reads {}", header.version, own.version));
    }
    const uint64_t room = bytes.size() - sizeof header - kChecksumBytes;
    if (header.entry_count > room / sizeof(ShardEntry) || header.name_bytes != room - header.entry_count * sizeof(ShardEntry)) {
        fail(fmt::format("{} entries and {} bytes of names do not fit its {} bytes", header.entry_count, header.name_bytes,
                         bytes.size()));
    }
    uint64_t checksum = 0;
    std::memcpy(&checksum, bytes.data() + bytes.size() - kChecksumBytes, kChecksumBytes);
    if (checksum != hash_bytes(bytes.data(), bytes.size() - kChecksumBytes)) fail("wrong checksum: the side index is damaged");

    ShardIndex index;
    index.tar_bytes = header.tar_bytes;
    index.ignored = static_cast<int64_t>(header.ignored);
    index.has_contents = header.has_contents != 0;
    index.entries_.resize(header.entry_count);
    const std::byte* entries = bytes.data() + sizeof header;
    if (header.entry_count > 0) std::memcpy(index.entries_.data(), entries, header.entry_count * sizeof(ShardEntry));
    index.names_.assign(reinterpret_cast<const char*>(entries + header.entry_count * sizeof(ShardEntry)), header.name_bytes);
    uint64_t name_end = 0;
    for (const ShardEntry& entry : index.entries_) {
        const bool inside = entry.bytes <= index.tar_bytes && entry.offset <= index.tar_bytes - entry.bytes;
        if (!inside || entry.label < 0 || entry.name_end < name_end || entry.name_end > header.name_bytes) {
            fail(fmt::format("entry {} is impossible", &entry - index.entries_.data()));
        }
        name_end = entry.name_end;
    }
    if (name_end != header.name_bytes) fail("names without an entry");
    return index;
}

std::string mismatch(const ShardIndex& index, std::span<const std::byte> tar) {
    if (index.tar_bytes != tar.size())
        return fmt::format("it was made for {} bytes, the shard has {}", index.tar_bytes, tar.size());
    const size_t count = index.entries().size();
    for (const size_t place : {size_t{0}, count / 2, count - 1}) {
        if (place >= count) continue;
        const ShardEntry& entry = index.entries()[place];
        if (!is_tar_member(tar, entry.offset, entry.bytes)) {
            return fmt::format("no member of {} bytes at offset {} of the shard", entry.bytes, entry.offset);
        }
    }
    return "";
}

}  // namespace lockstep
