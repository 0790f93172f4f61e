#include "configs/transforms.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "configs/scalars.h"
#include "core/error.h"
#include "core/nearest.h"

namespace lockstep {

namespace {

constexpr TransformOption kSize{"size", "pixels of a side, or [height, width]"};

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

void read_option(TransformConfig& transform, std::string_view option, const Node& node, const std::string& key) {
    if (option == "size") transform.size = read_size(node, key);
    if (option == "pad") transform.pad = read_pixels(node, key, 0);
    if (option == "scale") transform.scale = read_interval(node, key, 1.0);
    if (option == "ratio") transform.ratio = read_interval(node, key, 100.0);
    if (option == "probability") transform.probability = read_real(node, key, 0.0, 1.0, "number, 0 to 1");
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
        read_option(transform, option->name, member.value, fmt::format("{}.{}", key, option->name));
    }
}

TransformConfig read_transform(const Node& node, const std::string& key) {
    const bool is_pair = node.kind == Node::Kind::mapping && node.members.size() == 1;
    if (!is_pair && node.kind != Node::Kind::scalar)
        refuse(node, key, "one transform: `name`, `name: value` or `name: {option: value}`");
    const std::string& name = is_pair ? node.members[0].key : node.scalar;
    const TransformRow& row = find_transform(name, is_pair ? node.members[0].key_place : node.place, key);
    TransformConfig transform{.name = name};
    if (name == "random_resized_crop") {
        transform.scale = {0.08, 1.0};
        transform.ratio = {3.0 / 4.0, 4.0 / 3.0};
    }
    if (is_pair) {
        const Node& value = node.members[0].value;
        const std::string value_key = fmt::format("{}.{}", key, name);
        if (value.kind == Node::Kind::mapping) {
            read_options(transform, row, value, value_key);
        } else {
            read_option(transform, row.options.front().name, value, value_key);
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
        {"resize", "Scales; with one number the shorter side gets it.", {kSize}, true},
        {"center_crop", "The middle.", {kSize}, true},
        {"random_resized_crop",
         "A random part of random area and shape, scaled.",
         {kSize, {"scale", "[low, high] of the area's share, 0.08 to 1"}, {"ratio", "[low, high] of width / height, 3/4 to 4/3"}},
         true},
        {"random_crop", "A random part.", {kSize, {"pad", "zeros added on each side first, 0"}}, true},
        {"hflip", "Mirrors left and right.", {{"probability", "0.5"}}, false},
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
        if (transform.name == "hflip") options.push_back(fmt::format("probability: {}", transform.probability));
        entries.push_back(fmt::format("{{{}: {{{}}}}}", transform.name, fmt::join(options, ", ")));
    }
    return fmt::format("[{}]", fmt::join(entries, ", "));
}

}  // namespace lockstep
