// The side index of a WebDataset shard, kept beside it as SHARD.tar.idx: where each picture lies in the tar, its label, its size in
// pixels and the XXH3 of its bytes. The shard is complete without it; with it a set opens without reading its tars, and
// `lockstep data verify` knows what every byte should be. docs/data.md describes the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"

namespace lockstep {

// One sample as it stands in the file, little-endian.
struct ShardEntry {
    uint64_t offset = 0, bytes = 0;  // of the picture inside the tar
    uint64_t hash = 0;               // XXH3 of the picture
    int32_t label = 0;               // as the cls member has it
    uint32_t width = 0, height = 0;  // as the picture's header declares; 0: unreadable
    uint32_t name_end = 0;           // where the picture's member name ends in the block of names
};

class ShardIndex {
public:
    uint64_t tar_bytes = 0;     // length of the shard
    int64_t ignored = 0;        // members that belong to no sample
    bool has_contents = false;  // hash, width and height are known

    void add(std::string_view name, ShardEntry entry);  // sets name_end
    const std::vector<ShardEntry>& entries() const { return entries_; }
    std::vector<ShardEntry>& entries() { return entries_; }
    std::string_view name(size_t index) const;
    const std::string& names() const { return names_; }

private:
    friend ShardIndex parse_shard_index(std::span<const std::byte> bytes, const fs::path& path);

    std::vector<ShardEntry> entries_;
    std::string names_;  // one after another
};

fs::path shard_index_path(const fs::path& shard);

// From the tar itself: headers and labels are read, pictures are not. Samples are grouped as WebDataset does it: consecutive
// members that share everything before the first dot of their base name; the picture is the field jpg, jpeg or png (any case), the
// label the field cls, an integer as text. Other members are counted as ignored. DataError with path, member and offset for a
// damaged tar and for a sample that lacks its picture or its label: it must not vanish.
ShardIndex scan_shard(std::span<const std::byte> tar, const fs::path& path);

// Adds what only the pictures tell: hash and size.
void read_contents(std::span<const std::byte> tar, const fs::path& path, ShardIndex& index);

// The file's bytes, and back. parse: DataError naming `path` for another kind of file, another version, a cut or damaged file and
// for entries that do not fit into the shard.
std::string encode(const ShardIndex& index);
ShardIndex parse_shard_index(std::span<const std::byte> bytes, const fs::path& path);

// "" when `index` belongs to this tar: its length, and the headers of its first, middle and last picture. Else the reason.
std::string mismatch(const ShardIndex& index, std::span<const std::byte> tar);

}  // namespace lockstep
