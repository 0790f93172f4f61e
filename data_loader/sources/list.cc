// An image list: one "path label" a line; the label is the last word, so paths may hold spaces. Relative paths start at the list's
// folder. Blank lines are ignored. Everything is checked when the list is opened.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "data_loader/image_list.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

namespace {

class ListSource final : public Source {
public:
    explicit ListSource(const SourceOptions& options) : path_(options.path) {
        const MappedFile file(path_);
        const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
        entries_ = parse_image_list(text, path_, allowed_labels(options));
        base_ = path_.has_parent_path() ? path_.parent_path().string() + "/" : "";
        int64_t max_label = 0;
        for (const ImageListEntry& entry : entries_) {
            const fs::path image = full_name(entry);
            std::error_code error;
            const uint64_t bytes = fs::file_size(image, error);
            if (error) {
                throw DataError(fmt::format("{}: line {}: cannot read \"{}\": {}; correct the list", path_.string(), entry.line,
                                            entry.name, error.message()));
            }
            const uint64_t numbers[2] = {bytes, static_cast<uint64_t>(entry.label)};
            fingerprint_ = hash_bytes(numbers, sizeof numbers, hash_text(entry.name, fingerprint_));
            max_label = std::max<int64_t>(max_label, entry.label);
        }
        names_ = options.class_names;
        class_total_ = options.num_classes > 0 ? options.num_classes : std::max<int64_t>(max_label + 1, std::ssize(names_));
    }

    int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return class_total_; }
    int32_t label(int64_t index) const override { return entries_.at(static_cast<size_t>(index)).label; }
    uint64_t fingerprint() const override { return fingerprint_; }
    std::string description() const override {
        return fmt::format("image list {}: {} images, {} classes", path_.string(), entries_.size(), class_total_);
    }
    void read(int64_t index, Record& record) const override {
        const ImageListEntry& entry = entries_.at(static_cast<size_t>(index));
        record.key = entry.name.starts_with('/') ? "" : base_;
        record.key += entry.name;
        record.label = entry.label;
        record.encoding = Encoding::detect;
        read_into(record.key, record.storage);
        record.bytes = record.storage;
    }

private:
    std::string full_name(const ImageListEntry& entry) const {
        return entry.name.starts_with('/') ? entry.name : base_ + entry.name;
    }

    fs::path path_;
    std::string base_;  // what goes before an entry's name
    std::vector<ImageListEntry> entries_;
    std::vector<std::string> names_;
    int64_t class_total_ = 0;
    uint64_t fingerprint_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_list_source(const SourceOptions& options) { return std::make_unique<ListSource>(options); }

}  // namespace lockstep
