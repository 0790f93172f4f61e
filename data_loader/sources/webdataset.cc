// WebDataset shards: tar files in which consecutive members that share everything before the first dot of their base name are one
// sample. The image is the field jpg, jpeg or png (any case), the label the field cls: an integer as text. Other fields, and
// members without a field, are ignored and counted. A sample that has only one of image and label is an error: it must not vanish.
#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "data_loader/sources/sources.h"
#include "data_loader/tar.h"

namespace lockstep {

namespace {

struct Sample {
    size_t shard = 0;
    int32_t label = 0;
    TarMember image;
};

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

std::vector<std::string> shard_paths(const SourceOptions& options) {
    if (!fs::is_directory(options.path)) return expand_braces(options.path);
    std::vector<std::string> paths;
    for (const fs::directory_entry& entry : fs::directory_iterator(options.path)) {
        if (entry.path().extension() == ".tar") paths.push_back(entry.path().string());
    }
    if (paths.empty()) throw DataError(fmt::format("{}: the folder holds no .tar shard", options.path));
    std::sort(paths.begin(), paths.end());
    return paths;
}

class WebDatasetSource final : public Source {
public:
    explicit WebDatasetSource(const SourceOptions& options) : path_(options.path), allowed_(allowed_labels(options)) {
        for (const std::string& path : shard_paths(options)) {
            shards_.emplace_back(path);
            add_shard(shards_.size() - 1);
        }
        if (samples_.empty()) throw DataError(fmt::format("{}: no sample with an image and a cls field", path_));
        names_ = options.class_names;
        class_total_ = options.num_classes > 0 ? options.num_classes : std::max<int64_t>(max_label_ + 1, std::ssize(names_));
    }

    int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return class_total_; }
    int32_t label(int64_t index) const override { return samples_.at(static_cast<size_t>(index)).label; }
    uint64_t fingerprint() const override { return fingerprint_; }
    std::string description() const override {
        return fmt::format("WebDataset {}: {} shards, {} images, {} classes, {} other members ignored", path_, shards_.size(),
                           samples_.size(), class_total_, ignored_);
    }
    void read(int64_t index, Record& record) const override {
        const Sample& sample = samples_.at(static_cast<size_t>(index));
        const MappedFile& shard = shards_[sample.shard];
        record.key = shard.path().native();
        record.key += ':';
        record.key += sample.image.name;
        record.label = sample.label;
        record.encoding = Encoding::detect;
        record.bytes = shard.bytes().subspan(sample.image.offset, sample.image.size);
    }

private:
    // One sample while its members are being collected.
    struct Group {
        std::string_view key;
        const TarMember* image = nullptr;
        const TarMember* label = nullptr;
    };

    void add_shard(size_t shard) {
        const TarIndex index = read_tar_index(shards_[shard].bytes(), shards_[shard].path());
        ignored_ += index.skipped;
        Group group;
        for (const TarMember& member : index.members) {
            const auto [key, field] = split(member.name);
            if (key.empty()) {
                ++ignored_;
                continue;
            }
            if (key != group.key) {
                finish(shard, group);
                group = {.key = key};
            }
            add_member(shard, group, member, field);
        }
        finish(shard, group);
    }

    void add_member(size_t shard, Group& group, const TarMember& member, std::string_view field) {
        const bool is_image = field.find('.') == std::string_view::npos && has_image_suffix(member.name);
        if (!is_image && field != "cls") {
            ++ignored_;
            return;
        }
        const TarMember*& place = is_image ? group.image : group.label;
        if (place != nullptr) fail(shard, member, fmt::format("sample \"{}\" already has {}", group.key, place->name));
        place = &member;
    }

    void finish(size_t shard, const Group& group) {
        if (group.image == nullptr && group.label == nullptr) return;
        if (group.label == nullptr) fail(shard, *group.image, "the sample has an image but no cls field");
        if (group.image == nullptr) fail(shard, *group.label, "the sample has a label but no jpg, jpeg or png field");
        const auto bytes = shards_[shard].bytes().subspan(group.label->offset, std::min<uint64_t>(group.label->size, 64));
        const std::string_view text = trim({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        const std::optional<int32_t> label = parse_label(text, allowed_);
        if (!label) fail(shard, *group.label, fmt::format("label \"{}\" is not an integer in [0, {}]", text, allowed_ - 1));
        max_label_ = std::max<int64_t>(max_label_, *label);
        const uint64_t numbers[2] = {group.image->size, static_cast<uint64_t>(*label)};
        fingerprint_ = hash_bytes(numbers, sizeof numbers, hash_text(group.image->name, fingerprint_));
        samples_.push_back({shard, *label, *group.image});
    }

    [[noreturn]] void fail(size_t shard, const TarMember& member, std::string_view reason) const {
        throw DataError(fmt::format("{}: member {} at offset {} (record {}): {}; repair the shard", shards_[shard].path().string(),
                                    member.name, member.offset, samples_.size(), reason));
    }

    std::string path_;
    int64_t allowed_;
    std::vector<MappedFile> shards_;
    std::vector<Sample> samples_;
    std::vector<std::string> names_;
    int64_t class_total_ = 0, max_label_ = -1, ignored_ = 0;
    uint64_t fingerprint_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_webdataset_source(const SourceOptions& options) { return std::make_unique<WebDatasetSource>(options); }

}  // namespace lockstep
