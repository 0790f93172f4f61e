// JPEG files that no disk holds: shapes drawn and encoded when the source is opened, the same few over and over, so that a run or a
// benchmark pays for decoding and augmentation as with real pictures, but for nothing in front of them.
#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"
#include "data_loader/shapes.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

namespace {

constexpr int64_t kDrawn = 60;  // a multiple of the ten classes, and little enough to be drawn in a second

ShapeSize size_for(int image_size) {
    if (image_size <= 32) return ShapeSize::small;
    return image_size <= 128 ? ShapeSize::medium : ShapeSize::imagenet;
}

std::string_view sides(ShapeSize size) {
    switch (size) {
        case ShapeSize::small:
            return "32x32";
        case ShapeSize::medium:
            return "128x128";
        case ShapeSize::imagenet:
            break;
    }
    return "sides of 300 to 500";
}

class SyntheticJpegSource final : public Source {
public:
    explicit SyntheticJpegSource(const SourceOptions& options)
        : options_(options), shape_size_(size_for(options.image_size)), names_(options.class_names) {
        constexpr int64_t classes = std::ssize(kShapeNames);
        class_total_ = options.num_classes > 0 ? options.num_classes : classes;
        if (class_total_ < classes || options.synthetic_size < 1) {
            throw ConfigError(
                fmt::format("synthetic_jpeg data: {} images of {} classes are impossible; it draws {} classes: set as many, or "
                            "more (model.num_classes)",
                            options.synthetic_size, class_total_, classes));
        }
        if (names_.empty() && class_total_ == classes) names_.assign(kShapeNames.begin(), kShapeNames.end());
        draw();
    }

    int64_t size() const override { return options_.synthetic_size; }
    const std::vector<std::string>& class_names() const override { return names_; }
    int64_t class_total() const override { return class_total_; }
    uint64_t fingerprint() const override { return hash_text(description(), options_.seed); }
    std::string description() const override {
        return fmt::format("synthetic_jpeg: {} images, {} different ones with {}, {} classes", options_.synthetic_size,
                           files_.size(), sides(shape_size_), class_total_);
    }
    void read(int64_t index, Record& record) const override {
        check(index >= 0 && index < size(), "SyntheticJpegSource::read: index outside the set");
        const size_t place = place_of(index);
        record.key = fmt::format("synthetic_jpeg:{}", index);
        record.label = labels_[place];
        record.encoding = Encoding::detect;
        record.bytes = std::as_bytes(std::span(files_[place]));
    }
    int32_t label(int64_t index) const override { return labels_[place_of(index)]; }

private:
    void draw() {
        Image image;
        const int64_t count = std::min(kDrawn, options_.synthetic_size);
        files_.resize(static_cast<size_t>(count));
        for (int64_t index = 0; index < count; ++index) {
            labels_.push_back(draw_shape_file(options_.seed, options_.train ? "train" : "val", index, shape_size_, image,
                                              files_[static_cast<size_t>(index)]));
        }
    }
    size_t place_of(int64_t index) const { return static_cast<size_t>(index) % files_.size(); }

    const SourceOptions options_;
    const ShapeSize shape_size_;
    int64_t class_total_ = 0;
    std::vector<std::string> names_;
    std::vector<std::vector<uint8_t>> files_;
    std::vector<int32_t> labels_;
};

}  // namespace

std::unique_ptr<Source> open_synthetic_jpeg_source(const SourceOptions& options) {
    return std::make_unique<SyntheticJpegSource>(options);
}

}  // namespace lockstep
