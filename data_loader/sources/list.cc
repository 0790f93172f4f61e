// An image list: one "path label" a line; the label is the last word, so paths may hold spaces. Relative paths start at the list's
// folder. Blank lines are ignored. Everything is checked when the list is opened.
//
// A flat folder: pictures in one folder and a file of their labels. A line is "name label", or only a label: then line K belongs to
// picture K in byte order of the names. A label is an integer or a class name of the training set. Every picture needs one.
#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

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
    // Names are relative to `base`, which ends in "/" or is empty; `path` is the list's.
    ListSource(const SourceOptions& options, fs::path path, std::string base, std::vector<ImageListEntry> entries)
        : path_(std::move(path)), base_(std::move(base)), entries_(std::move(entries)) {
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
    std::string name(int64_t index) const override { return full_name(entries_.at(static_cast<size_t>(index))); }
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

// The pictures of a folder, without those below it.
std::vector<std::string> list_pictures(const fs::path& folder) {
    std::error_code error;
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        std::string name = entry.path().filename().string();
        if (!name.starts_with('.') && has_image_suffix(name)) names.push_back(std::move(name));
    }
    if (error) throw DataError(fmt::format("cannot list {}: {}; check the path", folder.string(), error.message()));
    if (names.empty()) throw DataError(fmt::format("{}: no jpg, jpeg or png file in this folder", folder.string()));
    std::sort(names.begin(), names.end());
    return names;
}

class FlatLabels {
public:
    FlatLabels(const SourceOptions& options, std::vector<std::string> pictures)
        : options_(options), path_(options.labels_path), pictures_(std::move(pictures)), labels_(pictures_.size()) {
        allowed_ = options.class_names.empty() ? allowed_labels(options) : std::ssize(options.class_names);
    }

    std::vector<ImageListEntry> read() {
        std::istringstream lines(read_file(path_));
        bool bare = false;
        int64_t number = 0, used = 0;
        for (std::string line; std::getline(lines, line);) {
            ++number;
            std::istringstream words(line);
            std::string first, second;
            if (!(words >> first)) continue;
            const bool only_label = !(words >> second);
            if (used++ == 0) bare = only_label;
            if (bare != only_label) fail(number, "\"name label\" and bare labels are mixed");
            keep(bare ? used - 1 : find(first, number), {first, class_of(bare ? first : second, number), number});
        }
        if (bare && used != std::ssize(pictures_)) {
            throw DataError(
                fmt::format("{}: {} labels for {} pictures; one is needed for each", path_.string(), used, pictures_.size()));
        }
        std::vector<ImageListEntry> entries;
        for (size_t picture = 0; picture < pictures_.size(); ++picture) {
            if (!labels_[picture]) {
                throw DataError(
                    fmt::format("{}: no label for {}; add it or remove the picture", path_.string(), pictures_[picture]));
            }
            entries.push_back({pictures_[picture], labels_[picture]->label, labels_[picture]->line});
        }
        return entries;
    }

private:
    [[noreturn]] void fail(int64_t number, std::string_view reason) const {
        throw DataError(fmt::format("{}: line {}: {}; a line is \"name label\" or \"label\"", path_.string(), number, reason));
    }
    int64_t find(const std::string& name, int64_t number) const {
        const auto place = std::lower_bound(pictures_.begin(), pictures_.end(), name);
        if (place == pictures_.end() || *place != name) fail(number, fmt::format("no picture \"{}\" in the folder", name));
        return place - pictures_.begin();
    }
    int32_t class_of(const std::string& text, int64_t number) const {
        if (const std::optional<int32_t> label = parse_label(text, allowed_, options_.first_label)) return *label;
        const auto place = std::find(options_.class_names.begin(), options_.class_names.end(), text);
        if (place == options_.class_names.end()) {
            fail(number, fmt::format("label \"{}\" is no class name and no integer in [{}, {}]", text, options_.first_label,
                                     allowed_ - 1 + options_.first_label));
        }
        return static_cast<int32_t>(place - options_.class_names.begin());
    }
    void keep(int64_t picture, ImageListEntry entry) {
        if (picture >= std::ssize(labels_)) return;  // counted, and told with the count
        std::optional<ImageListEntry>& place = labels_[static_cast<size_t>(picture)];
        if (place) fail(entry.line, fmt::format("\"{}\" has a label in line {}", entry.name, place->line));
        place = std::move(entry);
    }

    const SourceOptions& options_;
    const fs::path path_;
    const std::vector<std::string> pictures_;
    std::vector<std::optional<ImageListEntry>> labels_;  // of each picture
    int64_t allowed_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_list_source(const SourceOptions& options) {
    const fs::path path = options.path;
    std::string base = path.has_parent_path() ? path.parent_path().string() + "/" : "";
    return std::make_unique<ListSource>(options, path, std::move(base),
                                        parse_image_list(read_file(path), path, allowed_labels(options), options.first_label));
}

std::unique_ptr<Source> open_flat_source(const SourceOptions& options) {
    if (options.labels_path.empty()) {
        throw ConfigError(fmt::format("{}: a flat folder needs a file of labels; set data.val.labels (or --labels)", options.path));
    }
    return std::make_unique<ListSource>(options, options.labels_path, options.path + "/",
                                        FlatLabels(options, list_pictures(options.path)).read());
}

}  // namespace lockstep
