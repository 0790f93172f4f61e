// CIFAR-10 and CIFAR-100 in their binary form: records of one label byte (CIFAR-100: coarse, then fine; one is used) and 3072
// bytes of planar RGB, 32x32. A folder holds data_batch_1..5.bin and test_batch.bin, or train.bin and test.bin, perhaps one level
// down; the kind of a single file follows from its length. Class names come from batches.meta.txt, fine_label_names.txt or
// coarse_label_names.txt.
#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

namespace {

constexpr int kSide = 32;
constexpr size_t kPixelBytes = size_t{3} * kSide * kSide;
constexpr size_t kMaxBatches = 5;

// CIFAR-10: one label byte; CIFAR-100: two.
struct Variant {
    size_t label_bytes = 1;
    int64_t classes = 10;
    size_t label_at = label_bytes - 1;  // of the one that is used
    std::string_view names_file = "batches.meta.txt";
    size_t record_bytes() const { return label_bytes + kPixelBytes; }
};
constexpr Variant kCifar10, kCifar100{.label_bytes = 2, .classes = 100, .names_file = "fine_label_names.txt"},
    kCifar100Coarse{.label_bytes = 2, .classes = 20, .label_at = 0, .names_file = "coarse_label_names.txt"};

std::vector<fs::path> batch_paths(const fs::path& folder, bool train) {
    std::vector<fs::path> paths;
    for (size_t batch = 1; batch <= kMaxBatches && train; ++batch) {
        fs::path path = folder / fmt::format("data_batch_{}.bin", batch);
        if (fs::exists(path)) paths.push_back(std::move(path));
    }
    for (const fs::path& path : {folder / (train ? "train.bin" : "test_batch.bin"), folder / (train ? "train.bin" : "test.bin")}) {
        if (paths.empty() && fs::exists(path)) paths.push_back(path);
    }
    return paths;
}

fs::path folder_with_batches(const fs::path& folder) {
    for (const char* below : {"", "cifar-10-batches-bin", "cifar-100-binary"}) {
        fs::path candidate = *below == 0 ? folder : folder / below;
        if (!batch_paths(candidate, true).empty() || !batch_paths(candidate, false).empty()) return candidate;
    }
    return folder;
}

std::vector<std::string> read_names(const fs::path& folder, const Variant& variant) {
    const fs::path path = folder / variant.names_file;
    if (!fs::exists(path)) return {};
    std::istringstream text(read_file(path));
    std::vector<std::string> names;
    for (std::string name; text >> name;) names.push_back(name);
    if (static_cast<int64_t>(names.size()) != variant.classes) {
        throw DataError(fmt::format("{}: {} class names, expected {}", path.string(), names.size(), variant.classes));
    }
    return names;
}

class CifarSource final : public Source {
public:
    explicit CifarSource(const SourceOptions& options) : path_(options.path) {
        const bool is_folder = fs::is_directory(path_);
        const fs::path folder = is_folder ? folder_with_batches(path_) : path_.parent_path();
        const std::vector<fs::path> paths = is_folder ? batch_paths(folder, options.train) : std::vector<fs::path>{path_};
        if (paths.empty()) {
            throw DataError(fmt::format("{}: no {} in this folder", path_.string(),
                                        options.train ? "data_batch_1.bin or train.bin" : "test_batch.bin or test.bin"));
        }
        for (const fs::path& path : paths) files_.emplace_back(path);
        const bool is_100 = files_[0].bytes().size() % kCifar100.record_bytes() == 0;
        if (options.coarse_labels && !is_100) {
            throw ConfigError(fmt::format("{}: only CIFAR-100 has coarse labels; set cifar100_labels=fine", path_.string()));
        }
        variant_ = !is_100 ? kCifar10 : options.coarse_labels ? kCifar100Coarse : kCifar100;
        fingerprint_ = options.coarse_labels ? 1 : 0;
        names_ = read_names(folder, variant_);
        if (!options.class_names.empty() && !names_.empty()) map_classes(names_, options, path_.string());
        if (names_.empty()) names_ = options.class_names;
        if (options.num_classes > 0 && options.num_classes < variant_.classes) {
            throw DataError(fmt::format("{}: a set of {} classes but num_classes is {}; set model.num_classes", path_.string(),
                                        variant_.classes, options.num_classes));
        }
        class_total_ = std::max(options.num_classes, variant_.classes);
        for (const MappedFile& file : files_) check_file(file);
    }

    int64_t size() const override { return first_record_.back(); }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return class_total_; }
    uint64_t fingerprint() const override { return fingerprint_; }
    std::string description() const override {
        return fmt::format("CIFAR-{} binary {}: {} files, {} images",
                           variant_.label_bytes == 1 ? "10"
                           : variant_.label_at == 0  ? "100 (coarse)"
                                                     : "100",
                           path_.string(), files_.size(), size());
    }
    void read(int64_t index, Record& record) const override {
        check(index >= 0 && index < size(), "CifarSource::read: index outside the set");
        const auto after = std::upper_bound(first_record_.begin(), first_record_.end(), index);
        const size_t file = static_cast<size_t>(after - first_record_.begin()) - 1;
        const int64_t within = index - first_record_[file];
        const auto bytes = files_[file].bytes().subspan(static_cast<size_t>(within) * variant_.record_bytes());
        record.key.clear();
        fmt::format_to(std::back_inserter(record.key), "{}:{}", files_[file].path().native(), within);
        record.label = std::to_integer<int32_t>(bytes[variant_.label_at]);
        record.encoding = Encoding::raw;
        record.channels = 3;
        record.height = record.width = kSide;
        record.bytes = bytes.subspan(variant_.label_bytes, kPixelBytes);
    }

private:
    void check_file(const MappedFile& file) {
        const size_t record_bytes = variant_.record_bytes();
        const size_t records = file.bytes().size() / record_bytes;
        if (records == 0 || file.bytes().size() % record_bytes != 0) {
            throw DataError(
                fmt::format("{}: {} bytes are {} records of {} bytes and {} more (record {} at offset {} is cut); copy the "
                            "file again",
                            file.path().string(), file.bytes().size(), records, record_bytes, file.bytes().size() % record_bytes,
                            records, records * record_bytes));
        }
        for (size_t record = 0; record < records; ++record) {
            const size_t offset = record * record_bytes + variant_.label_at;
            check_byte_label(std::to_integer<unsigned>(file.bytes()[offset]), variant_.classes, file.path(),
                             static_cast<int64_t>(record), offset);
        }
        fingerprint_ = hash_bytes(file.bytes().data(), file.bytes().size(), fingerprint_);
        first_record_.push_back(first_record_.back() + static_cast<int64_t>(records));
    }

    fs::path path_;
    std::vector<MappedFile> files_;
    Variant variant_;
    std::vector<int64_t> first_record_{0};  // of each file, and one past the last
    std::vector<std::string> names_;
    int64_t class_total_ = 0;
    uint64_t fingerprint_ = 0;
};

}  // namespace

bool has_cifar_files(const fs::path& folder) {
    const fs::path inside = folder_with_batches(folder);
    return !batch_paths(inside, true).empty() || !batch_paths(inside, false).empty();
}

std::unique_ptr<Source> open_cifar_source(const SourceOptions& options) { return std::make_unique<CifarSource>(options); }

}  // namespace lockstep
