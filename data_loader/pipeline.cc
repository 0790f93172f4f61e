#include "data_loader/pipeline.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "data_loader/color_ops.h"
#include "data_loader/exif.h"
#include "data_loader/loader.h"
#include "data_loader/rand_augment.h"

namespace lockstep {

namespace {

using Kind = Transform::Kind;

Stage stage_of(const Transform& transform) {
    return transform.kind == Kind::resize || transform.kind == Kind::random_resized_crop ? Stage::resize : Stage::augment;
}

ResizeOptions resize_options(const Transform& transform) { return {.filter = transform.filter, .rounding = transform.rounding}; }

// The largest reduction that leaves at least the target's pixels.
int shrink_for(const CropBox& box, const Transform& target) {
    for (const int shrink : {8, 4, 2}) {
        if (box.width >= shrink * target.width && box.height >= shrink * target.height) return shrink;
    }
    return 1;
}

// Where [begin, begin + size) of an image lies in the part of its shrunk copy that covers it.
AxisRange shrunk_range(int begin, int size, int shrink) {
    const double scale = 1.0 / shrink;
    const int first = begin / shrink;
    return {begin * scale - first, (begin + size) * scale - first};
}

void flip_horizontally(const ImageView& image) {
    for (int y = 0; y < image.height; ++y) {
        if (image.bytes_per_pixel == 1) {
            std::reverse(image.row(y), image.row(y) + image.width);
            continue;
        }
        uint8_t* left = image.row(y);
        uint8_t* right = left + 4 * static_cast<ptrdiff_t>(image.width - 1);
        for (; left < right; left += 4, right -= 4) std::swap_ranges(left, left + 4, right);
    }
}

bool works_on_floats(const Transform& transform) {
    return transform.kind == Kind::pca_lighting || transform.kind == Kind::random_erasing;
}

// The same whether the image is mirrored before or after.
bool is_blind_to_mirrors(const Transform& transform) {
    return transform.kind == Kind::horizontal_flip || transform.kind == Kind::color_jitter || works_on_floats(transform);
}

// [1 - x, 1 + x], not below 0.
double draw_factor(double most, RandomStream& random) {
    const double low = std::max(0.0, 1.0 - most), high = 1.0 + most;
    return low + random.uniform_double() * (high - low);
}

}  // namespace

Pipeline::Pipeline(const PipelineOptions& options)
    : options_(options), normalisation_{.channels = options.channels, .mean = options.mean, .stddev = options.stddev} {
    validate(options_);
    if (options_.mean_image) normalisation_.mean = {}, normalisation_.stddev = {1.0F, 1.0F, 1.0F};
    first_free_flip_ = options_.transforms.size();
    while (first_free_flip_ > 0 && is_blind_to_mirrors(options_.transforms[first_free_flip_ - 1])) --first_free_flip_;
}

void Pipeline::run(const Record& record, int64_t epoch, int64_t sample, std::span<float> out) {
    RandomStream random(options_.seed, "augment", static_cast<uint64_t>(epoch), static_cast<uint64_t>(sample));
    size_t next_transform = 0;
    const ImageView image = transformed(record, random, next_transform);
    if (image.height != options_.height || image.width != options_.width) {
        throw DataError(fmt::format("{}: the image is {}x{} but the network takes {}x{}; add resize or a crop to the data pipeline",
                                    record.key, image.height, image.width, options_.height, options_.width));
    }
    const size_t floats =
        static_cast<size_t>(options_.channels) * static_cast<size_t>(image.height) * static_cast<size_t>(image.width);
    check(out.size() == floats, "Pipeline::run: the output does not fit the image");
    normalisation_.shift = {};
    const std::span<const Transform> rest = std::span(options_.transforms).subspan(next_transform);
    for (const Transform& transform : rest) {
        if (transform.kind == Kind::pca_lighting) light(transform, random);
    }
    pixel_kernels::normalise(image, normalisation_, mirrored_, out.data());
    if (options_.mean_image) subtract_mean_image(*options_.mean_image, options_.stddev, choices_.flipped, out);
    for (const Transform& transform : rest) {
        if (transform.kind == Kind::random_erasing) erase(transform, random, out);
    }
    clock_.lap(Stage::copy);
}

ImageView Pipeline::pixels(const Record& record, int64_t epoch, int64_t sample) {
    RandomStream random(options_.seed, "augment", static_cast<uint64_t>(epoch), static_cast<uint64_t>(sample));
    size_t next_transform = 0;
    const ImageView image = transformed(record, random, next_transform);
    if (mirrored_) flip_horizontally(image);
    return image;
}

// All transforms on pixels.
ImageView Pipeline::transformed(const Record& record, RandomStream& random, size_t& next_transform) {
    choices_.crops.clear();
    choices_.operations.clear();
    choices_.flipped = mirrored_ = false;
    choices_.erased = {};
    clock_.begin();
    ImageView image = decode(record, random, next_transform);
    for (; next_transform < options_.transforms.size(); ++next_transform) {
        const Transform& transform = options_.transforms[next_transform];
        if (works_on_floats(transform)) break;
        image = apply(transform, image, random, record);
        clock_.lap(stage_of(transform));
    }
    return image;
}

// A leading random_resized_crop is made by the decoder: it needs only its own pixels.
ImageView Pipeline::decode(const Record& record, RandomStream& random, size_t& next_transform) {
    const ImageSize stored = decoder_.open(record);
    if (stored.width <= 0 || stored.height <= 0) throw DataError(fmt::format("{}: the image has no pixels", record.key));
    const bool look = options_.apply_exif_orientation && decoder_.kind() == ContentKind::jpeg;
    const int orientation = look ? exif_orientation(record.bytes) : 1;
    choices_.stored = stored;
    used_buffer_ = 0;
    if (!options_.transforms.empty() && options_.transforms.front().kind == Kind::random_resized_crop) {
        next_transform = 1;
        const Transform& crop = options_.transforms.front();
        return decode_crop(crop, draw_crop(crop, oriented_size(stored, orientation), random), orientation);
    }
    ImageView image = decoder_.decode_all(stored, buffers_[0]);
    if (options_.channels == 1 && image.bytes_per_pixel == 4) image = to_grey(image);
    if (orientation != 1) image = orient(image, orientation, other_buffer());
    clock_.lap(Stage::decode);
    return image;
}

ImageView Pipeline::decode_crop(const Transform& crop, const CropBox& seen, int orientation) {
    DecodeRequest request{.box = stored_box(seen, choices_.stored, orientation), .everything = options_.decode == DecodeMode::full};
    if (options_.decode == DecodeMode::fast && orientation == 1 && decoder_.kind() == ContentKind::jpeg) {
        request.shrink = shrink_for(seen, crop);
    }
    ImageView image = decoder_.decode(request, buffers_[0]);
    if (options_.channels == 1 && image.bytes_per_pixel == 4) image = to_grey(image);
    if (orientation != 1) image = orient(image, orientation, other_buffer());
    clock_.lap(Stage::decode);
    ResizeOptions how = resize_options(crop);
    if (request.shrink > 1) {
        how.columns = shrunk_range(seen.x, seen.width, request.shrink);
        how.rows = shrunk_range(seen.y, seen.height, request.shrink);
    }
    image = resampler_.resize(image, crop.width, crop.height, other_buffer(), how);
    clock_.lap(Stage::resize);
    return image;
}

CropBox Pipeline::draw_crop(const Transform& transform, ImageSize size, RandomStream& random) {
    const CropBox box = random_resized_box(
        size, transform, [&random] { return random.uniform_double(); }, [&random](uint64_t bound) { return random.below(bound); });
    choices_.crops.push_back(box);
    return box;
}

Image& Pipeline::other_buffer() {
    used_buffer_ = 1 - used_buffer_;
    return buffers_[static_cast<size_t>(used_buffer_)];
}

ImageView Pipeline::apply(const Transform& transform, const ImageView& image, RandomStream& random, const Record& record) {
    switch (transform.kind) {
        case Kind::resize:
            return resize(transform, image, record);
        case Kind::center_crop:
            return center_crop(transform, image);
        case Kind::random_crop:
            return random_crop(transform, image, random, record);
        case Kind::random_resized_crop: {
            const CropBox box = draw_crop(transform, {image.width, image.height}, random);
            return resampler_.resize(image.crop(box), transform.width, transform.height, other_buffer(), resize_options(transform));
        }
        case Kind::horizontal_flip:
            flip(transform, image, random);
            return image;
        case Kind::color_jitter:
            jitter(transform, image, random);
            return image;
        case Kind::rand_augment:
            return augment(transform, image, random);
        case Kind::pca_lighting:
        case Kind::random_erasing:
            break;
    }
    check(false, "unknown transform on pixels");
    return image;
}

ImageView Pipeline::resize(const Transform& transform, const ImageView& image, const Record& record) {
    ImageSize target{transform.width, transform.height};
    if (transform.width == 0) target = shorter_side_to({image.width, image.height}, transform.height);
    if (target == ImageSize{image.width, image.height}) return image;
    if (int64_t{target.width} * target.height > kMaxImagePixels) {
        throw DataError(fmt::format("{}: a {}x{} image cannot be resized to {}x{}; remove it", record.key, image.height,
                                    image.width, target.height, target.width));
    }
    return resampler_.resize(image, target.width, target.height, other_buffer(), resize_options(transform));
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
    return image.crop(box);
}

// A flip that nothing after it can tell from a later one is left to the copy that normalises.
void Pipeline::flip(const Transform& transform, const ImageView& image, RandomStream& random) {
    if (random.uniform_double() >= transform.probability) return;
    choices_.flipped = !choices_.flipped;
    const bool free = static_cast<size_t>(&transform - options_.transforms.data()) >= first_free_flip_;
    if (free) {
        mirrored_ = !mirrored_;
    } else {
        flip_horizontally(image);
    }
}

// torchvision's order of draws: the permutation, then the four factors.
void Pipeline::jitter(const Transform& transform, const ImageView& image, RandomStream& random) {
    std::array<int, 4> order{0, 1, 2, 3};
    for (size_t last = order.size(); last > 1; --last) std::swap(order[last - 1], order[random.below(last)]);
    const double brightness = draw_factor(transform.brightness, random), contrast = draw_factor(transform.contrast, random);
    const double saturation = draw_factor(transform.saturation, random);
    const double hue = transform.hue * (2.0 * random.uniform_double() - 1.0);
    const auto note = [this](std::string_view name, double value) { choices_.operations.push_back({name, value}); };
    for (const int operation : order) {
        if (operation == 0 && transform.brightness > 0.0) {
            adjust_brightness(image, brightness);
            note("brightness", brightness);
        } else if (operation == 1 && transform.contrast > 0.0) {
            adjust_contrast(image, contrast);
            note("contrast", contrast);
        } else if (operation == 2 && transform.saturation > 0.0) {
            adjust_saturation(image, saturation);
            note("saturation", saturation);
        } else if (operation == 3 && transform.hue > 0.0) {
            adjust_hue(image, hue);
            note("hue", hue);
        }
    }
}

ImageView Pipeline::augment(const Transform& transform, ImageView image, RandomStream& random) {
    for (int turn = 0; turn < transform.operations; ++turn) {
        const auto operation = static_cast<AugmentOperation>(random.below(kAugmentOperations));
        double value = augment_magnitude(operation, transform.magnitude, transform.bins, {image.width, image.height});
        if (is_signed(operation) && random.below(2) == 1) value = -value;
        const ImageView result = lockstep::apply(operation, value, image, buffers_[static_cast<size_t>(1 - used_buffer_)]);
        if (result.pixels != image.pixels) used_buffer_ = 1 - used_buffer_;  // not done in place
        image = result;
        choices_.operations.push_back({name_of(operation), value});
    }
    return image;
}

// PCA lighting as fb.resnet.torch: three normal factors along the principal axes of ImageNet's colours.
void Pipeline::light(const Transform& transform, RandomStream& random) {
    constexpr std::array<float, 3> kValues{0.2175F, 0.0188F, 0.0045F};
    constexpr float kVectors[3][3] = {{-0.5675F, 0.7192F, 0.4009F}, {-0.5808F, -0.0045F, -0.8140F}, {-0.5836F, -0.6948F, 0.4203F}};
    std::array<float, 3> factors;
    for (float& factor : factors) factor = static_cast<float>(transform.strength) * random.normal();
    for (size_t channel = 0; channel < 3; ++channel) {
        for (size_t axis = 0; axis < 3; ++axis) {
            normalisation_.shift[channel] += kVectors[channel][axis] * factors[axis] * kValues[axis];
        }
    }
    choices_.operations.push_back({"lighting", normalisation_.shift[0]});
}

void Pipeline::erase(const Transform& transform, RandomStream& random, std::span<float> out) {
    if (random.uniform_double() >= transform.probability) return;
    const CropBox box = random_erasing_box(
        {options_.width, options_.height}, transform, [&random] { return random.uniform_double(); },
        [&random](uint64_t bound) { return random.below(bound); });
    choices_.erased = box;
    const size_t width = static_cast<size_t>(options_.width), plane = width * static_cast<size_t>(options_.height);
    for (size_t channel = 0; channel < static_cast<size_t>(options_.channels); ++channel) {
        for (int y = box.y; y < box.y + box.height; ++y) {
            float* row = out.data() + channel * plane + static_cast<size_t>(y) * width + box.x;
            for (int x = 0; x < box.width; ++x) row[x] = transform.random_values ? random.normal() : 0.0F;
        }
    }
}

void load_image(const Record& record, const PipelineOptions& options, int64_t epoch, int64_t sample, std::span<float> out) {
    Pipeline(options).run(record, epoch, sample, out);
}

}  // namespace lockstep
