#include "configs/transforms.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "configs/scalars.h"
#include "core/error.h"
#include "core/nearest.h"

namespace lockstep {

namespace {

const TransformOption kSize{"size", "pixels of a side, or [height, width]"};
const TransformOption kFilter{
    .name = "filter",
    .doc =
        "`bilinear`, `bicubic`, `nearest` as Pillow (the first two with antialias), `bilinear_plain` without antialias as "
        "NVIDIA's DALI pipeline and LBANN, `area` means as FFCV",
    .words = {"bilinear", "bicubic", "nearest", "bilinear_plain", "area"}};
const TransformOption kRounding{
    .name = "rounding", .doc = "`each_pass` as Pillow, or `once` as torchvision on tensors", .words = {"each_pass", "once"}};

[[noreturn]] void refuse(const Node& node, const std::string& key, std::string_view allowed) {
    throw ConfigError(fmt::format("{}: {}: found {}; allowed: {}", node.place.text(), key, node.describe(), allowed));
}

double read_real(const Node& node, const std::string& key, double min, double max, std::string_view allowed) {
    const auto value = node.kind == Node::Kind::scalar ? parse_number(node.scalar) : std::nullopt;
    if (!value || *value < min || *value > max) refuse(node, key, allowed);
    return *value;
}

int64_t read_pixels(const Node& node, const std::string& key, int64_t min) {
    const auto value = node.kind == Node::Kind::scalar ? parse_integer(node.scalar) : std::nullopt;
    if (!value || *value < min || *value > 4096) refuse(node, key, fmt::format("whole number, {} to 4096", min));
    return *value;
}

std::vector<int64_t> read_size(const Node& node, const std::string& key) {
    if (node.kind != Node::Kind::sequence) return {read_pixels(node, key, 1)};
    if (node.items.size() != 2) refuse(node, key, "a side, or [height, width]");
    return {read_pixels(node.items[0], key, 1), read_pixels(node.items[1], key, 1)};
}

std::vector<double> read_interval(const Node& node, const std::string& key, double max) {
    const std::string allowed = fmt::format("[low, high], above 0, at most {}", max);
    if (node.kind != Node::Kind::sequence || node.items.size() != 2) refuse(node, key, allowed);
    std::vector<double> interval;
    for (const Node& item : node.items) interval.push_back(read_real(item, key, std::numeric_limits<double>::min(), max, allowed));
    if (interval[0] > interval[1]) {
        throw ConfigError(
            fmt::format("{}: {}: found [{}, {}]; the low end comes first", node.place.text(), key, interval[0], interval[1]));
    }
    return interval;
}

std::string read_word(const Node& node, const std::string& key, const TransformOption& option) {
    const auto word = std::ranges::find(option.words, std::string_view(node.scalar));
    if (node.kind != Node::Kind::scalar || word == option.words.end())
        refuse(node, key, fmt::format("{}", fmt::join(option.words, ", ")));
    return node.scalar;
}

double read_number(const Node& node, const std::string& key, const TransformOption& option) {
    const std::string allowed = fmt::format("{}, {} to {}", option.whole ? "whole number" : "number", option.low, option.high);
    const double value = read_real(node, key, option.low, option.high, allowed);
    if (option.whole && value != std::floor(value)) refuse(node, key, allowed);
    return value;
}

void read_option(TransformConfig& transform, const TransformOption& option, const Node& node, const std::string& key) {
    const std::string_view name = option.name;
    if (name == "size") {
        transform.size = read_size(node, key);
    } else if (name == "pad") {
        transform.pad = read_pixels(node, key, 0);
    } else if (name == "scale") {
        transform.scale = read_interval(node, key, 1.0);
    } else if (name == "ratio") {
        transform.ratio = read_interval(node, key, 100.0);
    } else if (name == "probability") {
        transform.probability = read_real(node, key, 0.0, 1.0, "number, 0 to 1");
    } else if (!option.words.empty()) {
        transform.words[std::string(name)] = read_word(node, key, option);
    } else {
        transform.numbers[std::string(name)] = read_number(node, key, option);
    }
}

void set_default(TransformConfig& transform, const TransformOption& option) {
    if (option.name == "scale") transform.scale = {option.low, option.high};
    if (option.name == "ratio") transform.ratio = {option.low, option.high};
    if (option.name == "size" || option.name == "pad" || option.name == "scale" || option.name == "ratio" ||
        option.name == "probability") {
        return;
    }
    if (option.words.empty()) {
        transform.numbers[std::string(option.name)] = option.number;
    } else {
        transform.words[std::string(option.name)] = option.words.front();
    }
}

bool has_option(const std::string& transform, std::string_view option) {
    const auto& rows = transform_rows();
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const TransformRow& r) { return r.name == transform; });
    return row != rows.end() && std::ranges::any_of(row->options, [&](const TransformOption& o) { return o.name == option; });
}

const TransformRow& find_transform(const std::string& name, const Place& place, const std::string& key) {
    std::vector<std::string> names;
    for (const TransformRow& row : transform_rows()) {
        if (row.name == name) return row;
        names.emplace_back(row.name);
    }
    const std::string nearest = nearest_name(name, names);
    throw ConfigError(fmt::format("{}: {}: unknown transform \"{}\"{}; allowed: {}", place.text(), key, name,
                                  nearest.empty() ? "" : fmt::format(", did you mean {}?", nearest), fmt::join(names, ", ")));
}

void read_options(TransformConfig& transform, const TransformRow& row, const Node& node, const std::string& key) {
    for (const Member& member : node.members) {
        const auto option =
            std::find_if(row.options.begin(), row.options.end(), [&](const TransformOption& o) { return o.name == member.key; });
        if (option == row.options.end()) {
            std::vector<std::string_view> names;
            for (const TransformOption& known : row.options) names.push_back(known.name);
            throw ConfigError(fmt::format("{}: {}: unknown key \"{}\" of {}; allowed: {}", member.key_place.text(), key, member.key,
                                          row.name, fmt::join(names, ", ")));
        }
        read_option(transform, *option, member.value, fmt::format("{}.{}", key, option->name));
    }
}

TransformConfig read_transform(const Node& node, const std::string& key) {
    const bool is_pair = node.kind == Node::Kind::mapping && node.members.size() == 1;
    if (!is_pair && node.kind != Node::Kind::scalar)
        refuse(node, key, "one transform: `name`, `name: value` or `name: {option: value}`");
    const std::string& name = is_pair ? node.members[0].key : node.scalar;
    const TransformRow& row = find_transform(name, is_pair ? node.members[0].key_place : node.place, key);
    TransformConfig transform{.name = name};
    for (const TransformOption& option : row.options) set_default(transform, option);
    if (is_pair) {
        const Node& value = node.members[0].value;
        const std::string value_key = fmt::format("{}.{}", key, name);
        if (value.kind == Node::Kind::mapping) {
            read_options(transform, row, value, value_key);
        } else {
            read_option(transform, row.options.front(), value, value_key);
        }
    }
    if (row.needs_size && transform.size.empty()) {
        throw ConfigError(fmt::format("{}: {}: {} needs a size: write `{}: 224` or `{}: {{size: 224}}`", node.place.text(), key,
                                      name, name, name));
    }
    return transform;
}

}  // namespace

const std::vector<TransformRow>& transform_rows() {
    static const std::vector<TransformRow> rows{
        {"resize", "Scales; with one number the shorter side gets it.", {kSize, kFilter, kRounding}, true},
        {"center_crop", "The middle.", {kSize}, true},
        {"random_resized_crop",
         "A random part of random area and shape, scaled.",
         {kSize,
          {"scale", "[low, high] of the area's share, 0.08 to 1", 0.08, 1.0},
          {"ratio", "[low, high] of width / height, 3/4 to 4/3", 3.0 / 4.0, 4.0 / 3.0},
          kFilter,
          kRounding,
          {.name = "draws",
           .doc =
               "`torchvision`, or `lbann`: width / height is uniform, not its logarithm, both are exchanged in half of the draws "
               "and truncated",
           .words = {"torchvision", "lbann"}},
          {"tries", "before the largest centred part is taken, 10; 100 as NVIDIA's DALI pipeline", 1, 1000, 10, true}},
         true},
        {"random_crop", "A random part.", {kSize, {"pad", "zeros added on each side first, 0"}}, true},
        {"hflip", "Mirrors left and right.", {{"probability", "0.5"}}, false},
        {"color_jitter",
         "Changes colours by random factors, in random order.",
         {{"brightness", "factors 1 - x to 1 + x, 0", 0, 1000},
          {"contrast", "likewise", 0, 1000},
          {"saturation", "likewise", 0, 1000},
          {"hue", "turns by -x to x of the colour circle, 0", 0, 0.5}}},
        {"rand_augment",
         "RandAugment: random operations out of 14, with nearest interpolation.",
         {{"operations", "a picture, 2", 1, 100, 2, true},
          {"magnitude", "9", 0, 999, 9, true},
          {"bins", "number of magnitudes, 31", 2, 1000, 31, true}}},
        {"pca_lighting",
         "Adds light along the principal axes of ImageNet's colours, to the floats: at the end.",
         {{"strength", "standard deviation of the factors, 0.1", 0, 10, 0.1}}},
        {"random_erasing",
         "Erases a random part of the normalised picture: at the end.",
         {{"probability", "0.5"},
          {"scale", "[low, high] of the area's share, 0.02 to 0.33", 0.02, 0.33},
          {"ratio", "[low, high] of height / width, 0.3 to 3.3", 0.3, 3.3},
          {.name = "values", .doc = "`zero` (the mean colour) or `random`: normal noise", .words = {"zero", "random"}}}},
    };
    return rows;
}

std::vector<TransformConfig> read_pipeline(const std::string& name, const Node& node) {
    if (node.kind != Node::Kind::sequence)
        refuse(node, name, "a list of transforms, such as [{random_crop: {size: 32, pad: 4}}, hflip]");
    std::vector<TransformConfig> pipeline;
    for (size_t index = 0; index < node.items.size(); ++index) {
        pipeline.push_back(read_transform(node.items[index], fmt::format("{}[{}]", name, index)));
    }
    return pipeline;
}

std::string format_pipeline(const std::vector<TransformConfig>& pipeline) {
    std::vector<std::string> entries;
    for (const TransformConfig& transform : pipeline) {
        std::vector<std::string> options;
        if (!transform.size.empty()) options.push_back(fmt::format("size: [{}]", fmt::join(transform.size, ", ")));
        if (transform.size.size() == 1) options.back() = fmt::format("size: {}", transform.size[0]);
        if (transform.name == "random_crop") options.push_back(fmt::format("pad: {}", transform.pad));
        if (!transform.scale.empty()) options.push_back(fmt::format("scale: [{}]", fmt::join(transform.scale, ", ")));
        if (!transform.ratio.empty()) options.push_back(fmt::format("ratio: [{}]", fmt::join(transform.ratio, ", ")));
        if (has_option(transform.name, "probability")) options.push_back(fmt::format("probability: {}", transform.probability));
        for (const auto& [name, value] : transform.numbers) options.push_back(fmt::format("{}: {}", name, value));
        for (const auto& [name, word] : transform.words) options.push_back(fmt::format("{}: {}", name, word));
        entries.push_back(fmt::format("{{{}: {{{}}}}}", transform.name, fmt::join(options, ", ")));
    }
    return fmt::format("[{}]", fmt::join(entries, ", "));
}

}  // namespace lockstep
