// TFRecord files with one tf.train.Example a picture: a file, a pattern, or a folder. In a folder of both parts
// (train-00000-of-01024, validation-00000-of-00128) the files of one are taken. Lengths are checked when the set is opened, the
// data's checksum whenever a picture is read.
#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "data_loader/sources/mapped_records.h"
#include "data_loader/tfrecord.h"

namespace lockstep {

namespace {

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

class TfRecordSource final : public MappedRecords {
public:
    explicit TfRecordSource(const SourceOptions& options) : MappedRecords(options), path_(options.path) {
        for (const std::string& path : files_of(options)) add_file(path);
    }

    std::string description() const override {
        return fmt::format("TFRecord {}: {} files, {} images, {} classes", path_, file_count(), size(), class_total());
    }
    void read(int64_t index, Record& record) const override {
        const MappedFile& file = file_of(index);
        check_tfrecord(file.bytes(), records_.at(static_cast<size_t>(index)), number_in_file(index), file.path());
        MappedRecords::read(index, record);
    }

private:
    void add_file(const fs::path& path) {
        const auto bytes = begin_file(path).bytes();
        for (const TfRecord& record : read_tfrecord_index(bytes, path)) {
            const int64_t number = count_in_file();
            const std::optional<TfExample> example = parse_tf_example(bytes.subspan(record.offset, record.size));
            if (!example) {
                check_tfrecord(bytes, record, number, path);  // says so when the reason is damage
                throw DataError(
                    fmt::format("{}: record {} at offset {}: no tf.train.Example with image/encoded and "
                                "image/class/label; is it another kind of record?",
                                path.string(), number, record.offset));
            }
            add(example->label, example->image, record.offset);
            records_.push_back(record);
        }
    }

    std::string path_;
    std::vector<TfRecord> records_;
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
