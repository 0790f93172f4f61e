// TFRecord files with one tf.train.Example a picture: a file, a pattern, or a folder. In a folder of both parts
// (train-00000-of-01024, validation-00000-of-00128) the files of one are taken. Lengths are checked when the set is opened, the
// data's checksum whenever a picture is read.
#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "data_loader/sources/sources.h"
#include "data_loader/tfrecord.h"

namespace lockstep {

namespace {

struct Sample {
    uint32_t file = 0;
    int32_t label = 0;
    TfRecord record;
    uint64_t image_offset = 0, image_bytes = 0;  // in the file
};

std::vector<std::string> files_of(const SourceOptions& options) {
    if (!fs::is_directory(options.path)) return expand_braces(options.path);
    std::vector<std::string> all, part;
    for (const fs::directory_entry& entry : fs::directory_iterator(options.path)) {
        const std::string name = entry.path().filename().string();
        if (!entry.is_regular_file() || !is_tfrecord_name(name)) continue;
        all.push_back(entry.path().string());
        const bool of_training = name.starts_with("train"), of_validation = name.starts_with("val");
        if (options.train ? of_training : of_validation) part.push_back(entry.path().string());
    }
    std::vector<std::string>& files = part.empty() ? all : part;
    if (files.empty()) throw DataError(fmt::format("{}: no file x.tfrecord or x-00000-of-00128 in this folder", options.path));
    std::sort(files.begin(), files.end());
    return files;
}

class TfRecordSource final : public Source {
public:
    explicit TfRecordSource(const SourceOptions& options) : path_(options.path), labels_(options) {
        for (const std::string& path : files_of(options)) {
            files_.emplace_back(path);
            add_file(static_cast<uint32_t>(files_.size() - 1));
        }
        names_ = options.class_names;
        class_total_ = labels_.total(std::ssize(names_));
    }

    int64_t size() const override { return std::ssize(samples_); }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return class_total_; }
    int32_t label(int64_t index) const override { return samples_.at(static_cast<size_t>(index)).label; }
    uint64_t fingerprint() const override { return fingerprint_; }
    std::string description() const override {
        return fmt::format("TFRecord {}: {} files, {} images, {} classes", path_, files_.size(), samples_.size(), class_total_);
    }
    void read(int64_t index, Record& record) const override {
        const Sample& sample = samples_.at(static_cast<size_t>(index));
        const MappedFile& file = files_[sample.file];
        const int64_t number = index - first_sample_[sample.file];
        check_tfrecord(file.bytes(), sample.record, number, file.path());
        record.key.clear();
        fmt::format_to(std::back_inserter(record.key), "{}:{}", file.path().native(), number);
        record.label = sample.label;
        record.encoding = Encoding::detect;
        record.bytes = file.bytes().subspan(sample.image_offset, sample.image_bytes);
    }

private:
    void add_file(uint32_t file) {
        const auto bytes = files_[file].bytes();
        const fs::path& path = files_[file].path();
        first_sample_.push_back(size());
        for (const TfRecord& record : read_tfrecord_index(bytes, path)) {
            const int64_t number = size() - first_sample_[file];
            const std::optional<TfExample> example = parse_tf_example(bytes.subspan(record.offset, record.size));
            if (!example) {
                check_tfrecord(bytes, record, number, path);  // says so when the reason is damage
                throw DataError(
                    fmt::format("{}: record {} at offset {}: no tf.train.Example with image/encoded and "
                                "image/class/label; is it another kind of record?",
                                path.string(), number, record.offset));
            }
            const int32_t label = labels_.check(example->label, path, number, record.offset);
            samples_.push_back({.file = file,
                                .label = label,
                                .record = record,
                                .image_offset = static_cast<uint64_t>(example->image.data() - bytes.data()),
                                .image_bytes = example->image.size()});
            const uint64_t numbers[2] = {example->image.size(), static_cast<uint64_t>(label)};
            fingerprint_ = hash_bytes(numbers, sizeof numbers, fingerprint_);
        }
    }

    std::string path_;
    IntegerLabels labels_;
    std::vector<MappedFile> files_;
    std::vector<int64_t> first_sample_;  // of each file
    std::vector<Sample> samples_;
    std::vector<std::string> names_;
    int64_t class_total_ = 0;
    uint64_t fingerprint_ = 0;
};

}  // namespace

// "x.tfrecord", "x.tfrecords", "train-00000-of-01024", "set-train.tfrecord-00000-of-00004"
bool is_tfrecord_name(std::string_view name) {
    const size_t of = name.rfind("-of-");
    const auto digits = [](std::string_view text) {
        return !text.empty() && std::all_of(text.begin(), text.end(), [](char letter) { return letter >= '0' && letter <= '9'; });
    };
    return name.ends_with(".tfrecord") || name.ends_with(".tfrecords") ||
           (of != std::string_view::npos && digits(name.substr(of + 4)) && of >= 5 && digits(name.substr(of - 5, 5)));
}

std::unique_ptr<Source> open_tfrecord_source(const SourceOptions& options) { return std::make_unique<TfRecordSource>(options); }

}  // namespace lockstep
