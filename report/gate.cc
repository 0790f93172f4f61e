#include "report/gate.h"

#include <cstdlib>
#include <regex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep {

namespace {

bool holds(double value, const std::string& relation, double bound) {
    if (relation == "<") return value < bound;
    if (relation == "<=") return value <= bound;
    if (relation == ">") return value > bound;
    return value >= bound;
}

std::string known_names(const nlohmann::ordered_json& headline) {
    std::string names;
    for (const auto& [name, value] : headline.items()) {
        if (!value.is_string()) names += (names.empty() ? "" : ", ") + name;
    }
    return names;
}

}  // namespace

std::optional<std::string> closed_gate(std::string_view report_json, const std::string& expression) {
    const std::regex form(R"(\s*([a-z0-9_]+)\s*(<=|>=|<|>)\s*([-+0-9.eE]+)\s*)");
    std::smatch match;
    if (!std::regex_match(expression, match, form)) {
        throw ConfigError(fmt::format("--fail-if: found \"{}\"; allowed NAME<NUMBER with <, <=, > or >=", expression));
    }
    const std::string name = match[1], relation = match[2], bound_text = match[3];
    char* end = nullptr;
    const double bound = std::strtod(bound_text.c_str(), &end);
    if (*end != '\0') throw ConfigError(fmt::format("--fail-if: \"{}\" is not a number", bound_text));

    const auto headline = nlohmann::ordered_json::parse(report_json).at("headline");
    if (!headline.contains(name) || headline[name].is_string()) {
        throw ConfigError(fmt::format("--fail-if: unknown value \"{}\"; allowed: {}", name, known_names(headline)));
    }
    if (headline[name].is_null()) return fmt::format("{} is n/a (too few steps), so \"{}\" cannot be judged", name, expression);
    const double value = headline[name].get<double>();
    if (!holds(value, relation, bound)) return std::nullopt;
    return fmt::format("{} is {:.6g}: {}{}{}", name, value, name, relation, bound_text);
}

}  // namespace lockstep
