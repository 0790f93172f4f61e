#include "report/gate.h"

#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep {

namespace {

struct Parts {
    std::string name, relation, bound;
};

std::string trimmed(std::string_view text) {
    constexpr std::string_view kBlanks = " \t";
    const size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return {};
    return std::string(text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1));
}

// NAME RELATION NUMBER; what is missing or of another form is empty.
Parts split(std::string_view expression) {
    const size_t sign = expression.find_first_of("<>");
    if (sign == std::string_view::npos) return {};
    const size_t length = expression.substr(sign + 1).starts_with('=') ? 2 : 1;
    Parts parts{trimmed(expression.substr(0, sign)), std::string(expression.substr(sign, length)),
                trimmed(expression.substr(sign + length))};
    if (parts.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos) parts.name.clear();
    if (parts.bound.find_first_not_of("-+0123456789.eE") != std::string::npos) parts.bound.clear();
    return parts;
}

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
    const Parts parts = split(expression);
    const auto& [name, relation, bound_text] = parts;
    if (name.empty() || relation.empty() || bound_text.empty()) {
        throw ConfigError(fmt::format("--fail-if: found \"{}\"; allowed NAME<NUMBER with <, <=, > or >=", expression));
    }
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
