// WebDataset shards (data_loader/shard_index.h says what a sample is). A side index that belongs to its shard is used instead of
// the tar; where one is missing, older than its shard or of another one, the shard's headers are read, with the same result. Class
// names come from class_names.txt beside the shards, one a line, as `lockstep data pack` writes it.
#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/log.h"
#include "data_loader/shard_index.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

namespace {

struct Shard {
    MappedFile file;
    ShardIndex index;
    int64_t first_sample = 0;
};

std::vector<std::string> read_class_names(const fs::path& path) {
    if (!fs::exists(path)) return {};
    std::istringstream text(read_file(path));
    std::vector<std::string> names;
    for (std::string name; std::getline(text, name);) names.push_back(name);
    return names;
}

// The side index of a shard, or why it cannot be used ("" when there is none).
std::optional<ShardIndex> load_index(const MappedFile& shard, std::string& reason) {
    const fs::path path = shard_index_path(shard.path());
    if (!fs::exists(path)) return std::nullopt;
    try {
        const MappedFile file(path);
        ShardIndex index = parse_shard_index(file.bytes(), path);
        reason = mismatch(index, shard.bytes());
        if (reason.empty() && fs::last_write_time(path) < fs::last_write_time(shard.path())) reason = "it is older than its shard";
        if (reason.empty()) return index;
        reason = fmt::format("{}: {}", path.string(), reason);
    } catch (const DataError& error) {
        reason = error.what();
    }
    return std::nullopt;
}

// Of what both know.
std::string difference(const ShardIndex& index, const ShardIndex& scanned) {
    if (index.entries().size() != scanned.entries().size()) {
        return fmt::format("{} samples, the shard has {}", index.entries().size(), scanned.entries().size());
    }
    for (size_t place = 0; place < index.entries().size(); ++place) {
        const ShardEntry &a = index.entries()[place], &b = scanned.entries()[place];
        if (a.offset != b.offset || a.bytes != b.bytes || a.label != b.label || index.name(place) != scanned.name(place)) {
            return fmt::format(
                "record {} is {} of label {}, {} bytes at offset {}; in the shard it is {} of label {}, {} bytes at {}", place,
                index.name(place), a.label, a.bytes, a.offset, scanned.name(place), b.label, b.bytes, b.offset);
        }
    }
    return "";
}

class WebDatasetSource final : public Source {
public:
    explicit WebDatasetSource(const SourceOptions& options) : path_(options.path), first_label_(options.first_label) {
        const std::vector<std::string> paths = webdataset_shards(options.path);
        for (const std::string& path : paths) open_shard(path);
        if (size_ == 0) throw DataError(fmt::format("{}: no sample with an image and a cls field", path_));
        if (unusable_ > 0) {
            log::warn(
                "{} of {} side indexes are not used ({}); the shards are read instead; make them again with `lockstep data "
                "index`",
                unusable_, paths.size(), first_reason_);
        }
        set_classes(options, fs::path(paths.front()).parent_path() / "class_names.txt");
        for (const Shard& shard : shards_) check_labels(shard, options);
    }

    int64_t size() const override { return size_; }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return class_total_; }
    int32_t label(int64_t index) const override {
        const auto [shard, place] = find(index);
        return label_of(shard->index.entries()[place]);
    }
    std::optional<Declared> declared(int64_t index) const override {
        const auto [shard, place] = find(index);
        if (!shard->index.has_contents) return std::nullopt;
        const ShardEntry& entry = shard->index.entries()[place];
        return Declared{.hash = entry.hash, .width = static_cast<int>(entry.width), .height = static_cast<int>(entry.height)};
    }
    std::vector<std::string> contradictions() const override {
        std::vector<std::string> found = unusable_ > 0 ? std::vector<std::string>{first_reason_} : std::vector<std::string>{};
        for (const Shard& shard : shards_) {
            try {
                const ShardIndex scanned = scan_shard(shard.file.bytes(), shard.file.path());
                if (std::string text = difference(shard.index, scanned); !text.empty()) {
                    found.push_back(fmt::format("{}: {}", shard_index_path(shard.file.path()).string(), text));
                }
            } catch (const DataError& error) {
                found.emplace_back(error.what());
            }
        }
        return found;
    }
    uint64_t fingerprint() const override { return fingerprint_; }
    std::string description() const override {
        return fmt::format("WebDataset {}: {} shards ({} with a side index), {} images, {} classes, {} other members ignored",
                           path_, shards_.size(), indexed_, size_, class_total_, ignored_);
    }
    std::string name(int64_t index) const override {
        const auto [shard, place] = find(index);
        return fmt::format("{}:{}", shard->file.path().native(), shard->index.name(place));
    }
    void will_need(int64_t index) const override {
        const auto [shard, place] = find(index);
        const ShardEntry& entry = shard->index.entries()[place];
        MappedFile::will_need(shard->file.bytes().subspan(entry.offset, entry.bytes));
    }
    void read(int64_t index, Record& record) const override {
        const auto [shard, place] = find(index);
        const ShardEntry& entry = shard->index.entries()[place];
        record.key = shard->file.path().native();
        record.key += ':';
        record.key += shard->index.name(place);
        record.label = label_of(entry);
        record.encoding = Encoding::detect;
        record.bytes = shard->file.bytes().subspan(entry.offset, entry.bytes);
    }

private:
    struct Place {
        const Shard* shard;
        size_t entry;
    };

    void open_shard(const std::string& path) {
        Shard shard{.file = MappedFile(path), .index = {}, .first_sample = size_};
        std::string reason;
        std::optional<ShardIndex> index = load_index(shard.file, reason);
        if (index) ++indexed_;
        if (!reason.empty() && unusable_++ == 0) first_reason_ = reason;
        shard.index = index ? std::move(*index) : scan_shard(shard.file.bytes(), path);
        size_ += std::ssize(shard.index.entries());
        ignored_ += shard.index.ignored;
        shards_.push_back(std::move(shard));
    }

    // Without names of its own the set has those of training.
    void set_classes(const SourceOptions& options, const fs::path& names_file) {
        const std::vector<std::string> found = read_class_names(names_file);
        if (found.empty()) {
            names_ = options.class_names;
            return;
        }
        ClassMap map = map_classes(found, options, names_file.string());
        names_ = std::move(map.names);
        label_of_found_ = std::move(map.label_of_found);
    }

    void check_labels(const Shard& shard, const SourceOptions& options) {
        const int64_t allowed = label_of_found_.empty() ? allowed_labels(options) : std::ssize(label_of_found_);
        int64_t max_label = -1;
        for (size_t place = 0; place < shard.index.entries().size(); ++place) {
            const ShardEntry& entry = shard.index.entries()[place];
            if (entry.label < first_label_ || entry.label - first_label_ >= allowed) {
                throw DataError(
                    fmt::format("{}: member {} at offset {} (record {}): label \"{}\" is not an integer in [{}, {}]; "
                                "repair the shard",
                                shard.file.path().string(), shard.index.name(place), entry.offset, place, entry.label, first_label_,
                                allowed - 1 + first_label_));
            }
            max_label = std::max<int64_t>(max_label, label_of(entry));
            const uint64_t numbers[2] = {entry.bytes, static_cast<uint64_t>(label_of(entry))};
            fingerprint_ = hash_bytes(numbers, sizeof numbers, hash_text(shard.index.name(place), fingerprint_));
        }
        const int64_t least = std::max<int64_t>({class_total_, max_label + 1, std::ssize(names_)});
        class_total_ = options.num_classes > 0 ? options.num_classes : least;
    }

    int32_t label_of(const ShardEntry& entry) const {
        const int32_t found = entry.label - first_label_;
        return label_of_found_.empty() ? found : label_of_found_[static_cast<size_t>(found)];
    }

    Place find(int64_t index) const {
        check(index >= 0 && index < size_, "WebDatasetSource: index outside the set");
        const auto after = std::upper_bound(shards_.begin(), shards_.end(), index,
                                            [](int64_t wanted, const Shard& shard) { return wanted < shard.first_sample; });
        const Shard& shard = *(after - 1);
        return {&shard, static_cast<size_t>(index - shard.first_sample)};
    }

    std::string path_;
    int32_t first_label_;
    std::vector<Shard> shards_;
    std::vector<std::string> names_;
    std::vector<int32_t> label_of_found_;  // empty: labels are as stored
    int64_t size_ = 0, class_total_ = 0, ignored_ = 0, indexed_ = 0, unusable_ = 0;
    std::string first_reason_;
    uint64_t fingerprint_ = 0;
};

}  // namespace

std::vector<std::string> webdataset_shards(const std::string& path) {
    if (!fs::is_directory(path)) return expand_braces(path);
    std::vector<std::string> paths;
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
        if (entry.path().extension() == ".tar") paths.push_back(entry.path().string());
    }
    if (paths.empty()) throw DataError(fmt::format("{}: the folder holds no .tar shard", path));
    std::sort(paths.begin(), paths.end());
    return paths;
}

std::unique_ptr<Source> open_webdataset_source(const SourceOptions& options) { return std::make_unique<WebDatasetSource>(options); }

}  // namespace lockstep
