// MNIST and its relatives in idx files, gzipped or not. A folder holds train-images-idx3-ubyte and t10k-images-idx3-ubyte with
// their labels; a file is the images, its labels are named by `labels_path` or found by the usual name beside it.
#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "data_loader/idx.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

namespace {

constexpr int64_t kDigits = 10;

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    const size_t place = text.rfind(from);
    if (place != std::string::npos) text.replace(place, from.size(), to);
    return text;
}

fs::path find_labels(const SourceOptions& options, const fs::path& images) {
    if (!options.labels_path.empty()) return options.labels_path;
    const std::string name = replaced(replaced(images.filename().string(), "images", "labels"), "idx3", "idx1");
    for (const std::string& candidate : {name, replaced(name, ".gz", ""), name + ".gz"}) {
        const fs::path path = images.parent_path() / candidate;
        if (path != images && fs::exists(path)) return path;
    }
    throw DataError(
        fmt::format("{}: no labels beside it (looked for {}); set data.train.labels or data.val.labels", images.string(), name));
}

class MnistSource final : public Source {
public:
    explicit MnistSource(const SourceOptions& options) : images_path_(images_path(options)) {
        const fs::path labels_path = find_labels(options, images_path_);
        images_ = read_idx(images_path_);
        labels_ = read_idx(labels_path);
        if (images_.dimensions.size() != 3) {
            throw DataError(fmt::format("{}: {} dimensions, images have 3; is it the labels file?", images_path_.string(),
                                        images_.dimensions.size()));
        }
        if (labels_.dimensions.size() != 1 || labels_.dimensions[0] != images_.dimensions[0]) {
            throw DataError(fmt::format("{}: {} labels for the {} images of {}; the two files do not belong together",
                                        labels_path.string(), labels_.dimensions[0], images_.dimensions[0], images_path_.string()));
        }
        int64_t max_label = 0;
        const int64_t allowed = std::min<int64_t>(allowed_labels(options), 256);
        const uint64_t header_bytes = 8;
        for (size_t record = 0; record < labels_.values.size(); ++record) {
            const unsigned label = std::to_integer<unsigned>(labels_.values[record]);
            check_byte_label(label, allowed, labels_path, static_cast<int64_t>(record), header_bytes + record);
            max_label = std::max<int64_t>(max_label, label);
        }
        names_ = options.class_names;
        class_total_ = options.num_classes > 0 ? options.num_classes : std::max(kDigits, max_label + 1);
        fingerprint_ =
            hash_bytes(labels_.values.data(), labels_.values.size(), hash_bytes(images_.values.data(), images_.values.size()));
    }

    int64_t size() const override { return images_.dimensions[0]; }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return class_total_; }
    int32_t label(int64_t index) const override { return std::to_integer<int32_t>(labels_.values.at(static_cast<size_t>(index))); }
    uint64_t fingerprint() const override { return fingerprint_; }
    std::string description() const override {
        return fmt::format("idx images {}: {} images of {}x{}, {} classes", images_path_.string(), size(), images_.dimensions[1],
                           images_.dimensions[2], class_total_);
    }
    void read(int64_t index, Record& record) const override {
        const size_t bytes = static_cast<size_t>(images_.dimensions[1] * images_.dimensions[2]);
        check(index >= 0 && index < size(), "MnistSource::read: index outside the set");
        record.key.clear();
        fmt::format_to(std::back_inserter(record.key), "{}:{}", images_path_.native(), index);
        record.label = std::to_integer<int32_t>(labels_.values[static_cast<size_t>(index)]);
        record.encoding = Encoding::raw;
        record.channels = 1;
        record.height = static_cast<int>(images_.dimensions[1]);
        record.width = static_cast<int>(images_.dimensions[2]);
        record.bytes = std::span(images_.values).subspan(static_cast<size_t>(index) * bytes, bytes);
    }

private:
    static fs::path images_path(const SourceOptions& options) {
        if (!fs::is_directory(options.path)) return options.path;
        if (const auto images = find_mnist_images(options.path, options.train)) return *images;
        throw DataError(
            fmt::format("{}: no {}-images-idx3-ubyte or .gz in this folder", options.path, options.train ? "train" : "t10k"));
    }

    fs::path images_path_;
    IdxArray images_, labels_;
    std::vector<std::string> names_;
    int64_t class_total_ = 0;
    uint64_t fingerprint_ = 0;
};

}  // namespace

std::optional<fs::path> find_mnist_images(const fs::path& folder, bool train) {
    const std::string stem = train ? "train" : "t10k";
    for (const char* suffix : {"-images-idx3-ubyte", "-images-idx3-ubyte.gz", "-images.idx3-ubyte", "-images.idx3-ubyte.gz"}) {
        fs::path path = folder / (stem + suffix);
        if (fs::exists(path)) return path;
    }
    return std::nullopt;
}

std::unique_ptr<Source> open_mnist_source(const SourceOptions& options) { return std::make_unique<MnistSource>(options); }

}  // namespace lockstep
