#include "configs/reader.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "configs/schema.h"
#include "core/error.h"
#include "core/hash.h"

namespace lockstep {

namespace {

void read_section(const Node& node, const std::string& section, ReadResult& result) {
    for (const Member& member : node.members) {
        const std::string name = section.empty() ? member.key : section + "." + member.key;
        const bool has_dot = member.key.find('.') != std::string::npos;
        if (const SchemaRow* row = has_dot ? nullptr : find_row(name)) {
            read_value(*row, member.value, result.experiment);
            result.origins[name] = member.key_place;
        } else if (!has_dot && is_section(name)) {
            if (member.value.kind != Node::Kind::mapping) {
                throw ConfigError(fmt::format("{}: {}: found {}; allowed: a block of keys", member.value.place.text(), name,
                                              member.value.describe()));
            }
            read_section(member.value, name, result);
        } else {
            throw ConfigError(fmt::format("{}: {}", member.key_place.text(), unknown_key_text(section, member.key)));
        }
    }
}

// Opens the blocks of `name` that the previous name was not in.
void open_blocks(std::string& text, const std::string& previous, const std::string& name) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
        const std::string block = name.substr(0, dot + 1);
        if (previous.starts_with(block)) continue;
        const auto depth = static_cast<size_t>(std::count(block.begin(), block.end(), '.') - 1);
        const size_t begin = depth == 0 ? 0 : name.rfind('.', dot - 1) + 1;
        text += fmt::format("{}{}:\n", std::string(2 * depth, ' '), name.substr(begin, dot - begin));
    }
}

// `wanted` says which rows are printed, `comment` what stands beside a row (empty: nothing).
template <typename Wanted, typename Comment>
std::string write_rows(const Experiment& source, const Wanted& wanted, const Comment& comment) {
    Experiment experiment = source;
    std::string text, previous;
    for (const SchemaRow& row : schema()) {
        if (!wanted(row)) continue;
        open_blocks(text, previous, row.name);
        const auto depth = static_cast<size_t>(std::count(row.name.begin(), row.name.end(), '.'));
        const std::string key = row.name.substr(row.name.rfind('.') + 1), beside = comment(row);
        text += fmt::format("{}{}: {}{}{}\n", std::string(2 * depth, ' '), key, format_value(row, experiment),
                            beside.empty() ? "" : "  # ", beside);
        previous = row.name;
    }
    return text;
}

std::string resolve(const Experiment& experiment, const std::string& left_out) {
    return write_rows(
        experiment, [&left_out](const SchemaRow& row) { return row.name != left_out; },
        [](const SchemaRow&) { return std::string(); });
}

}  // namespace

int64_t Duration::steps(int64_t steps_per_epoch) const {
    return std::llround(unit == Unit::epochs ? amount * static_cast<double>(steps_per_epoch) : amount);
}

std::string shown_text(const Experiment& experiment, const std::map<std::string, Place>& origins, const ShowOptions& options) {
    const auto comment = [&](const SchemaRow& row) -> std::string {
        if (!options.comments) return {};
        const auto origin = origins.find(row.name);
        return origin == origins.end() ? "default" : origin->second.text();
    };
    return write_rows(
        experiment, [&](const SchemaRow& row) { return options.defaults || origins.contains(row.name); }, comment);
}

ReadResult read_experiment_with_origins(const std::string& path, const std::vector<std::string>& overrides,
                                        const VariableLookup& environment) {
    ReadResult result;
    read_section(compose_document(path, overrides, environment), "", result);
    Experiment& experiment = result.experiment;
    check_contract(experiment, result.origins, path);
    experiment.resolved_yaml = resolve(experiment, "");
    experiment.hash = hash_hex(hash_text(resolve(experiment, "run.dir")));
    return result;
}

Experiment read_experiment(const std::string& path, const std::vector<std::string>& overrides) {
    const auto environment = [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    };
    return read_experiment_with_origins(path, overrides, environment).experiment;
}

}  // namespace lockstep
