// Class folders: PATH/CLASS/**/image. Classes are the folder names in byte order; images are taken in byte order of their path
// inside the class. Names that begin with a dot are hidden and ignored with all they contain; other files without an image suffix
// are ignored; both are counted. Symbolic links are followed. A class folder without images keeps its place in the class map and
// gives one warning.
#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/log.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

namespace {

struct FolderEntry {
    std::string name;  // relative to the root: "cat/0001.jpg"
    uint64_t size = 0;
    int32_t label = 0;
};

// Follows symbolic links; one that leads in a circle ends here.
bool is_folder(const fs::directory_entry& entry) {
    std::error_code error;
    const bool folder = entry.is_directory(error);
    if (error && error != std::errc::no_such_file_or_directory) {
        throw DataError(fmt::format("cannot read {}: {}; repair or remove it", entry.path().string(), error.message()));
    }
    return folder;
}

class FolderSource final : public Source {
public:
    FolderSource(const SourceOptions& options) : root_(options.path) {
        const std::vector<std::string> found = list_classes();
        if (found.empty()) {
            throw DataError(fmt::format("{}: no class folders; expected {}/CLASS/image.jpg", root_.string(), root_.string()));
        }
        const ClassMap map = map_classes(found, options, root_.string());
        names_ = map.names;
        for (size_t index = 0; index < found.size(); ++index) add_class(found[index], map.label_of_found[index]);
        if (entries_.empty()) {
            throw DataError(fmt::format("{}: no jpg, jpeg or png file in its {} class folders", root_.string(), found.size()));
        }
        for (const FolderEntry& entry : entries_) {
            fingerprint_ = hash_text(entry.name, fingerprint_);
            const uint64_t numbers[2] = {entry.size, static_cast<uint64_t>(entry.label)};
            fingerprint_ = hash_bytes(numbers, sizeof numbers, fingerprint_);
        }
    }

    int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return static_cast<int64_t>(names_.size()); }
    int32_t label(int64_t index) const override { return entries_.at(static_cast<size_t>(index)).label; }
    uint64_t fingerprint() const override { return fingerprint_; }
    std::string description() const override {
        std::string text = fmt::format("class folders {}: {} images, {} classes, {} other files ignored", root_.string(),
                                       entries_.size(), names_.size(), ignored_);
        for (const std::string& name : empty_classes_) text += fmt::format(", class \"{}\" is empty", name);
        return text;
    }
    std::string name(int64_t index) const override { return root_.native() + "/" + entries_.at(static_cast<size_t>(index)).name; }
    void read(int64_t index, Record& record) const override {
        const FolderEntry& entry = entries_.at(static_cast<size_t>(index));
        record.key = root_.native();
        record.key += '/';
        record.key += entry.name;
        record.label = entry.label;
        record.encoding = Encoding::detect;
        read_into(record.key, record.storage);
        record.bytes = record.storage;
    }

private:
    std::vector<std::string> list_classes() {
        std::vector<std::string> found;
        std::error_code error;
        for (const fs::directory_entry& entry : fs::directory_iterator(root_, error)) {
            std::string name = entry.path().filename().string();
            if (name.starts_with('.') || !is_folder(entry)) {
                ++ignored_;
            } else {
                found.push_back(std::move(name));
            }
        }
        if (error) throw DataError(fmt::format("cannot list {}: {}; check the path", root_.string(), error.message()));
        std::sort(found.begin(), found.end());
        return found;
    }

    void add_class(const std::string& name, int32_t label) {
        const size_t before = entries_.size();
        add_files(fs::path(name), label);
        std::sort(entries_.begin() + static_cast<ptrdiff_t>(before), entries_.end(),
                  [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
        if (entries_.size() > before) return;
        empty_classes_.push_back(name);
        log::warn("{}: class folder \"{}\" has no images; the class keeps its number", root_.string(), name);
    }

    void add_files(const fs::path& folder, int32_t label) {
        std::error_code error;
        for (const fs::directory_entry& entry : fs::directory_iterator(root_ / folder, error)) {
            const std::string name = entry.path().filename().string();
            const fs::path relative = folder / name;
            if (name.starts_with('.')) {
                ++ignored_;
            } else if (is_folder(entry)) {
                add_files(relative, label);
            } else if (!has_image_suffix(name)) {
                ++ignored_;
            } else {
                std::error_code size_error;
                const uint64_t bytes = entry.file_size(size_error);
                if (size_error) {
                    throw DataError(
                        fmt::format("cannot read {}: {}; repair or remove it", entry.path().string(), size_error.message()));
                }
                entries_.push_back({relative.string(), bytes, label});
            }
        }
        if (error) throw DataError(fmt::format("cannot list {}: {}", (root_ / folder).string(), error.message()));
    }

    fs::path root_;
    std::vector<std::string> names_;
    std::vector<FolderEntry> entries_;
    std::vector<std::string> empty_classes_;
    int64_t ignored_ = 0;
    uint64_t fingerprint_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_folder_source(const SourceOptions& options) { return std::make_unique<FolderSource>(options); }

}  // namespace lockstep
