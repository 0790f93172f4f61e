#include "data_loader/pipeline.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

void flip_horizontally(const ImageView& image) {
    for (int y = 0; y < image.height; ++y) {
        if (image.bytes_per_pixel == 1) {
            std::reverse(image.row(y), image.row(y) + image.width);
            continue;
        }
        uint8_t* left = image.row(y);
        uint8_t* right = left + 4 * static_cast<ptrdiff_t>(image.width - 1);
        for (; left < right; left += 4, right -= 4) {
            uint32_t a, b;
            std::memcpy(&a, left, 4);
            std::memcpy(&b, right, 4);
            std::memcpy(left, &b, 4);
            std::memcpy(right, &a, 4);
        }
    }
}

// In place, with Pillow's weights (ITU-R 601-2 in 16-bit fixed point).
ImageView to_grey(const ImageView& image) {
    for (int y = 0; y < image.height; ++y) {
        uint8_t* row = image.row(y);
        for (int x = 0; x < image.width; ++x) {
            const uint8_t* pixel = row + 4 * static_cast<ptrdiff_t>(x);
            row[x] = static_cast<uint8_t>((pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16);
        }
    }
    return {image.pixels, image.width, image.height, 1, image.stride_bytes};
}

Stage stage_of(Transform::Kind kind) {
    return kind == Transform::Kind::resize || kind == Transform::Kind::random_resized_crop ? Stage::resize : Stage::augment;
}

void validate(const Transform& transform) {
    using Kind = Transform::Kind;
    if (transform.kind == Kind::horizontal_flip) {
        if (!(transform.probability >= 0.0 && transform.probability <= 1.0)) {
            throw ConfigError(fmt::format("hflip: probability {} is outside [0, 1]", transform.probability));
        }
        return;
    }
    const bool side_only = transform.kind == Kind::resize && transform.width == 0;
    constexpr int kMaxSide = 1 << 14;
    if (transform.height < 1 || transform.height > kMaxSide ||
        (!side_only && (transform.width < 1 || transform.width > kMaxSide))) {
        throw ConfigError(fmt::format("data pipeline: size {}x{} is outside [1, {}]", transform.height, transform.width, kMaxSide));
    }
    if (transform.pad < 0 || transform.pad > kMaxSide) {
        throw ConfigError(fmt::format("random_crop: pad {} is outside [0, {}]", transform.pad, kMaxSide));
    }
    if (transform.kind != Kind::random_resized_crop) return;
    if (!(transform.scale_min > 0.0 && transform.scale_min <= transform.scale_max && transform.scale_max <= 1.0)) {
        throw ConfigError(fmt::format("random_resized_crop: scale [{}, {}] must be increasing and inside (0, 1]",
                                      transform.scale_min, transform.scale_max));
    }
    if (!(transform.ratio_min > 0.0 && transform.ratio_min <= transform.ratio_max && transform.ratio_max < 1e3)) {
        throw ConfigError(fmt::format("random_resized_crop: ratio [{}, {}] must be increasing and inside (0, 1000)",
                                      transform.ratio_min, transform.ratio_max));
    }
}

}  // namespace

void validate(const PipelineOptions& options) {
    if (options.channels != 1 && options.channels != 3) {
        throw ConfigError(fmt::format("images have 1 or 3 channels, not {}; set model.channels", options.channels));
    }
    if (options.height < 1 || options.width < 1) {
        throw ConfigError(fmt::format("image size {}x{} is impossible; set model.image_size", options.height, options.width));
    }
    for (const float deviation : options.stddev) {
        if (!(deviation > 0.0F)) throw ConfigError(fmt::format("data.std {} must be greater than 0", deviation));
    }
    const Transform* last_sized = nullptr;
    for (const Transform& transform : options.transforms) {
        validate(transform);
        if (transform.kind != Transform::Kind::horizontal_flip) last_sized = &transform;
    }
    if (last_sized == nullptr || (last_sized->kind == Transform::Kind::resize && last_sized->width == 0)) return;
    if (last_sized->height != options.height || last_sized->width != options.width) {
        throw ConfigError(fmt::format("the data pipeline ends at {}x{} but the network takes {}x{}; make them equal",
                                      last_sized->height, last_sized->width, options.height, options.width));
    }
}

Pipeline::Pipeline(const PipelineOptions& options) : options_(options) {
    validate(options_);
    normalised_.resize(static_cast<size_t>(options_.channels));
    for (size_t channel = 0; channel < normalised_.size(); ++channel) {
        for (size_t value = 0; value < 256; ++value) {
            const float scaled = static_cast<float>(value) / 255.0F;
            normalised_[channel][value] = (scaled - options_.mean[channel]) / options_.stddev[channel];
        }
    }
}

void Pipeline::run(const Record& record, int64_t epoch, int64_t sample, std::span<float> out) {
    RandomStream random(options_.seed, "augment", static_cast<uint64_t>(epoch), static_cast<uint64_t>(sample));
    size_t next_transform = 0;
    choices_.crops.clear();
    choices_.flipped = false;
    clock_.begin();
    ImageView image = decode(record, random, next_transform);
    for (; next_transform < options_.transforms.size(); ++next_transform) {
        image = apply(options_.transforms[next_transform], image, random, record);
        clock_.lap(stage_of(options_.transforms[next_transform].kind));
    }
    if (image.height != options_.height || image.width != options_.width) {
        throw DataError(fmt::format("{}: the image is {}x{} but the network takes {}x{}; add resize or a crop to the data pipeline",
                                    record.key, image.height, image.width, options_.height, options_.width));
    }
    normalise(image, out);
    clock_.lap(Stage::copy);
}

// A leading random_resized_crop needs only its own rows decoded.
ImageView Pipeline::decode(const Record& record, RandomStream& random, size_t& next_transform) {
    const ImageSize size = decoder_.open(record);
    if (size.width <= 0 || size.height <= 0) throw DataError(fmt::format("{}: the image has no pixels", record.key));
    choices_.stored = size;
    CropBox box{0, 0, size.width, size.height};
    const Transform* first = options_.transforms.empty() ? nullptr : options_.transforms.data();
    const bool crop_first = first != nullptr && first->kind == Transform::Kind::random_resized_crop;
    if (crop_first) {
        box = random_resized_box(
            size, *first, [&random] { return random.uniform_double(); }, [&random](uint64_t bound) { return random.below(bound); });
        choices_.crops.push_back(box);
    }
    used_buffer_ = 0;
    ImageView image = decoder_.decode(box.y, box.height, buffers_[0]).crop(box.x, 0, box.width, box.height);
    if (options_.channels == 1 && image.bytes_per_pixel == 4) image = to_grey(image);
    clock_.lap(Stage::decode);
    if (!crop_first) return image;
    next_transform = 1;
    image = resampler_.resize(image, first->width, first->height, other_buffer());
    clock_.lap(Stage::resize);
    return image;
}

Image& Pipeline::other_buffer() {
    used_buffer_ = 1 - used_buffer_;
    return buffers_[static_cast<size_t>(used_buffer_)];
}

ImageView Pipeline::apply(const Transform& transform, const ImageView& image, RandomStream& random, const Record& record) {
    switch (transform.kind) {
        case Transform::Kind::resize: {
            ImageSize target{transform.width, transform.height};
            if (transform.width == 0) target = shorter_side_to({image.width, image.height}, transform.height);
            if (target == ImageSize{image.width, image.height}) return image;
            if (int64_t{target.width} * target.height > kMaxImagePixels) {
                throw DataError(fmt::format("{}: a {}x{} image cannot be resized to {}x{}; remove it", record.key, image.height,
                                            image.width, target.height, target.width));
            }
            return resampler_.resize(image, target.width, target.height, other_buffer());
        }
        case Transform::Kind::center_crop:
            return center_crop(transform, image);
        case Transform::Kind::random_crop:
            return random_crop(transform, image, random, record);
        case Transform::Kind::random_resized_crop: {
            const CropBox box = random_resized_box(
                {image.width, image.height}, transform, [&random] { return random.uniform_double(); },
                [&random](uint64_t bound) { return random.below(bound); });
            choices_.crops.push_back(box);
            return resampler_.resize(image.crop(box.x, box.y, box.width, box.height), transform.width, transform.height,
                                     other_buffer());
        }
        case Transform::Kind::horizontal_flip:
            if (random.uniform_double() < transform.probability) {
                flip_horizontally(image);
                choices_.flipped = !choices_.flipped;
            }
            return image;
    }
    check(false, "unknown transform");
    return image;
}

ImageView Pipeline::pad(const ImageView& image, int left, int top, int right, int bottom) {
    const ImageView out = other_buffer().reshape(image.width + left + right, image.height + top + bottom, image.bytes_per_pixel);
    std::memset(out.pixels, 0, out.stride_bytes * static_cast<size_t>(out.height));
    const ImageView inner = out.crop(left, top, image.width, image.height);
    const size_t row_bytes = static_cast<size_t>(image.width) * static_cast<size_t>(image.bytes_per_pixel);
    for (int y = 0; y < image.height; ++y) std::memcpy(inner.row(y), image.row(y), row_bytes);
    return out;
}

ImageView Pipeline::random_crop(const Transform& transform, ImageView image, RandomStream& random, const Record& record) {
    if (transform.pad > 0) image = pad(image, transform.pad, transform.pad, transform.pad, transform.pad);
    if (image.width < transform.width || image.height < transform.height) {
        throw DataError(fmt::format("{}: random_crop of {}x{} needs a larger image than {}x{} (padding included); resize first",
                                    record.key, transform.height, transform.width, image.height, image.width));
    }
    const int y = static_cast<int>(random.below(static_cast<uint64_t>(image.height - transform.height + 1)));
    const int x = static_cast<int>(random.below(static_cast<uint64_t>(image.width - transform.width + 1)));
    choices_.crops.push_back({x, y, transform.width, transform.height});
    return image.crop(x, y, transform.width, transform.height);
}

ImageView Pipeline::center_crop(const Transform& transform, ImageView image) {
    const int missing_width = std::max(transform.width - image.width, 0);
    const int missing_height = std::max(transform.height - image.height, 0);
    if (missing_width > 0 || missing_height > 0) {
        image = pad(image, missing_width / 2, missing_height / 2, (missing_width + 1) / 2, (missing_height + 1) / 2);
    }
    const CropBox box = center_box({image.width, image.height}, transform.width, transform.height);
    choices_.crops.push_back(box);
    return image.crop(box.x, box.y, box.width, box.height);
}

void Pipeline::normalise(const ImageView& image, std::span<float> out) const {
    const size_t width = static_cast<size_t>(image.width);
    const size_t plane = width * static_cast<size_t>(image.height);
    const size_t step = static_cast<size_t>(image.bytes_per_pixel);
    check(out.size() == plane * normalised_.size(), "Pipeline::run: the output does not fit the image");
    for (size_t channel = 0; channel < normalised_.size(); ++channel) {
        const float* table = normalised_[channel].data();
        const size_t from = step == 4 ? channel : 0;  // grey is repeated
        for (int y = 0; y < image.height; ++y) {
            const uint8_t* row = image.row(y) + from;
            float* to = out.data() + channel * plane + static_cast<size_t>(y) * width;
            for (size_t x = 0; x < width; ++x) to[x] = table[row[x * step]];
        }
    }
}

void load_image(const Record& record, const PipelineOptions& options, int64_t epoch, int64_t sample, std::span<float> out) {
    Pipeline(options).run(record, epoch, sample, out);
}

}  // namespace lockstep
