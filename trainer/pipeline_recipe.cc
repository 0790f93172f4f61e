// From the configuration's names of transforms to those of data_loader.
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "trainer/recipe.h"

namespace lockstep {

namespace {

using Kind = Transform::Kind;

Kind kind_named(const std::string& name) {
    static constexpr std::pair<std::string_view, Kind> kKinds[] = {
        {"resize", Kind::resize},
        {"center_crop", Kind::center_crop},
        {"random_resized_crop", Kind::random_resized_crop},
        {"random_crop", Kind::random_crop},
        {"hflip", Kind::horizontal_flip},
        {"color_jitter", Kind::color_jitter},
        {"rand_augment", Kind::rand_augment},
        {"pca_lighting", Kind::pca_lighting},
        {"random_erasing", Kind::random_erasing},
    };
    for (const auto& [known, kind] : kKinds) {
        if (known == name) return kind;
    }
    throw ConfigError(fmt::format("data pipeline: found {}; allowed: the transforms of docs/config.md", name));
}

Filter filter_named(const std::string& name) {
    if (name == "bicubic") return Filter::bicubic;
    if (name == "nearest") return Filter::nearest;
    if (name == "bilinear_plain") return Filter::bilinear_plain;
    if (name == "area") return Filter::area;
    return Filter::bilinear;
}

BadImagePolicy bad_image_policy_named(const std::string& name) {
    return name == "skip" || name == "substitute" ? BadImagePolicy::skip : BadImagePolicy::error;
}

DecodeMode decode_named(const std::string& name) {
    return name == "full" ? DecodeMode::full : name == "fast" ? DecodeMode::fast : DecodeMode::exact;
}

// Options that this transform does not have keep their defaults.
void read_numbers(const TransformConfig& config, Transform& transform) {
    const auto number = [&](const char* name, auto& value) {
        if (const auto found = config.numbers.find(name); found != config.numbers.end()) {
            value = static_cast<std::remove_reference_t<decltype(value)>>(found->second);
        }
    };
    number("tries", transform.tries);
    number("brightness", transform.brightness);
    number("contrast", transform.contrast);
    number("saturation", transform.saturation);
    number("hue", transform.hue);
    number("operations", transform.operations);
    number("magnitude", transform.magnitude);
    number("bins", transform.bins);
    number("strength", transform.strength);
}

void read_words(const TransformConfig& config, Transform& transform) {
    const auto word = [&](const char* name) {
        const auto found = config.words.find(name);
        return found == config.words.end() ? std::string() : found->second;
    };
    transform.filter = filter_named(word("filter"));
    if (word("rounding") == "once") transform.rounding = Rounding::once;
    if (word("draws") == "lbann") transform.draws = CropDraws::lbann;
    transform.random_values = word("values") == "random";
}

Transform make_transform(const TransformConfig& config) {
    Transform transform{.kind = kind_named(config.name), .pad = static_cast<int>(config.pad), .probability = config.probability};
    if (!config.size.empty()) {
        transform.height = static_cast<int>(config.size.front());
        const bool shorter_side = transform.kind == Kind::resize && config.size.size() == 1;
        transform.width = shorter_side ? 0 : static_cast<int>(config.size.back());
    }
    if (config.scale.size() == 2) std::tie(transform.scale_min, transform.scale_max) = std::pair(config.scale[0], config.scale[1]);
    if (config.ratio.size() == 2) std::tie(transform.ratio_min, transform.ratio_max) = std::pair(config.ratio[0], config.ratio[1]);
    read_numbers(config, transform);
    read_words(config, transform);
    return transform;
}

std::shared_ptr<const MeanImage> mean_image_of(const Experiment::Data& data) {
    if (data.mean != Experiment::Data().mean) throw ConfigError("data.mean and data.mean_file exclude each other; leave one out");
    const std::string file = read_file(data.mean_file);
    return std::make_shared<MeanImage>(parse_mean_image(std::as_bytes(std::span(file)), data.mean_file));
}

}  // namespace

PipelineOptions pipeline_options(const Experiment& experiment, const DataSetConfig& data) {
    PipelineOptions options{.channels = static_cast<int>(experiment.model.channels),
                            .height = static_cast<int>(experiment.model.image_size),
                            .width = static_cast<int>(experiment.model.image_size),
                            .on_bad_image = bad_image_policy_named(experiment.data.on_bad_image),
                            .decode = decode_named(experiment.data.decode),
                            .apply_exif_orientation = experiment.data.apply_exif_orientation,
                            .seed = experiment.run.seed};
    for (size_t channel = 0; channel < 3; ++channel) {
        options.mean[channel] = static_cast<float>(experiment.data.mean[channel]);
        options.stddev[channel] = static_cast<float>(experiment.data.stddev[channel]);
    }
    if (!experiment.data.mean_file.empty()) options.mean_image = mean_image_of(experiment.data);
    for (const TransformConfig& step : data.pipeline) options.transforms.push_back(make_transform(step));
    return options;
}

}  // namespace lockstep
