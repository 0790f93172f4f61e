#include "data_loader/transform_checks.h"

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

using Kind = Transform::Kind;
constexpr int kMaxSide = 1 << 14;

bool sets_size(const Transform& transform) {
    return transform.kind == Kind::resize || transform.kind == Kind::center_crop || transform.kind == Kind::random_resized_crop ||
           transform.kind == Kind::random_crop;
}

bool works_on_floats(const Transform& transform) {
    return transform.kind == Kind::pca_lighting || transform.kind == Kind::random_erasing;
}

void check_range(std::string_view name, std::string_view option, double low, double high, double most) {
    if (low > 0.0 && low <= high && high <= most) return;
    throw ConfigError(fmt::format("{}: {} [{}, {}] must be increasing and inside (0, {}]", name, option, low, high, most));
}

void check_value(std::string_view name, std::string_view option, double value, double least, double most) {
    if (value >= least && value <= most) return;
    throw ConfigError(fmt::format("{}: {} {} is outside [{}, {}]", name, option, value, least, most));
}

void check_size(const Transform& transform) {
    const bool side_only = transform.kind == Kind::resize && transform.width == 0;
    if (transform.height < 1 || transform.height > kMaxSide ||
        (!side_only && (transform.width < 1 || transform.width > kMaxSide))) {
        throw ConfigError(fmt::format("data pipeline: size {}x{} is outside [1, {}]", transform.height, transform.width, kMaxSide));
    }
    const bool tensor_filter = transform.filter == Filter::bilinear || transform.filter == Filter::bicubic;
    if (transform.rounding == Rounding::once && !tensor_filter) {
        throw ConfigError("data pipeline: rounding: once is for the filters bilinear and bicubic");
    }
}

void check_transform(const Transform& transform) {
    if (sets_size(transform)) check_size(transform);
    switch (transform.kind) {
        case Kind::resize:
        case Kind::center_crop:
            break;
        case Kind::random_crop:
            check_value("random_crop", "pad", transform.pad, 0, kMaxSide);
            break;
        case Kind::random_resized_crop:
            check_range("random_resized_crop", "scale", transform.scale_min, transform.scale_max, 1.0);
            check_range("random_resized_crop", "ratio", transform.ratio_min, transform.ratio_max, 1000.0);
            check_value("random_resized_crop", "tries", transform.tries, 1, 1000);
            break;
        case Kind::horizontal_flip:
            check_value("hflip", "probability", transform.probability, 0.0, 1.0);
            break;
        case Kind::color_jitter:
            for (const double most : {transform.brightness, transform.contrast, transform.saturation}) {
                check_value("color_jitter", "brightness, contrast or saturation", most, 0.0, 1000.0);
            }
            check_value("color_jitter", "hue", transform.hue, 0.0, 0.5);
            break;
        case Kind::rand_augment:
            check_value("rand_augment", "bins", transform.bins, 2, 1000);
            check_value("rand_augment", "magnitude", transform.magnitude, 0, transform.bins - 1);
            check_value("rand_augment", "operations", transform.operations, 1, 100);
            break;
        case Kind::pca_lighting:
            check_value("pca_lighting", "strength", transform.strength, 0.0, 10.0);
            break;
        case Kind::random_erasing:
            check_value("random_erasing", "probability", transform.probability, 0.0, 1.0);
            check_range("random_erasing", "scale", transform.scale_min, transform.scale_max, 1.0);
            check_range("random_erasing", "ratio", transform.ratio_min, transform.ratio_max, 1000.0);
            break;
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
        if (!(deviation > 0.0F)) throw ConfigError(fmt::format("data.stddev {} must be greater than 0", deviation));
    }
    if (const MeanImage* mean = options.mean_image.get();
        mean != nullptr && (mean->channels != options.channels || mean->height != options.height || mean->width != options.width)) {
        throw ConfigError(
            fmt::format("the mean image of data.mean_file is {}x{}x{} but the network takes {}x{}x{}; they must be equal",
                        mean->channels, mean->height, mean->width, options.channels, options.height, options.width));
    }
    const Transform* last_sized = nullptr;
    bool on_floats = false;
    for (const Transform& transform : options.transforms) {
        check_transform(transform);
        if (sets_size(transform)) last_sized = &transform;
        if (on_floats && !works_on_floats(transform)) {
            throw ConfigError("data pipeline: pca_lighting and random_erasing work on normalised pixels; put them at the end");
        }
        on_floats = on_floats || works_on_floats(transform);
        if (transform.kind == Kind::pca_lighting && options.channels == 1) {
            throw ConfigError("pca_lighting is for three colour channels; leave it out, or set model.channels: 3");
        }
    }
    if (last_sized == nullptr || (last_sized->kind == Kind::resize && last_sized->width == 0)) return;
    if (last_sized->height != options.height || last_sized->width != options.width) {
        throw ConfigError(fmt::format("the data pipeline ends at {}x{} but the network takes {}x{}; make them equal",
                                      last_sized->height, last_sized->width, options.height, options.width));
    }
}

}  // namespace lockstep
