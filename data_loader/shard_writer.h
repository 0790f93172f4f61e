// Writes one WebDataset shard and its side index.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/files.h"
#include "data_loader/image.h"
#include "data_loader/shard_index.h"

namespace lockstep {

// The shard grows under PATH.tmp. finish() writes the index and then renames: under its name a shard is always whole and has its
// index. The same samples give the same bytes (no times, no users). DeviceError when a file cannot be written; an unfinished shard
// is removed. One thread.
class ShardWriter {
public:
    explicit ShardWriter(const fs::path& path);
    ShardWriter(const ShardWriter&) = delete;
    ShardWriter& operator=(const ShardWriter&) = delete;
    ~ShardWriter();

    // Members KEY.SUFFIX and KEY.cls. Keys are at most 90 bytes.
    void add(const std::string& key, std::string_view suffix, std::span<const std::byte> picture, int32_t label, ImageSize size);
    void finish();

    uint64_t bytes() const { return bytes_; }  // so far
    int64_t samples() const { return std::ssize(index_.entries()); }
    static uint64_t bytes_of_sample(uint64_t picture_bytes);  // what add() will add

private:
    void write(const void* data, size_t size);
    uint64_t add_member(const std::string& name, std::span<const std::byte> content);  // where the content lies
    [[noreturn]] void fail() const;

    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    fs::path path_, temporary_;
    std::unique_ptr<std::FILE, Close> file_;
    ShardIndex index_;
    uint64_t bytes_ = 0;
    bool finished_ = false;
};

}  // namespace lockstep
