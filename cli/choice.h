// An option of the command line that is one of a few named values. They are compared letter by letter, as in the configuration; who
// writes one otherwise is told which are allowed and which is meant.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "core/nearest.h"

namespace lockstep {

inline std::string refuse_choice(const std::string& text, const std::vector<std::string>& names) {
    const std::string nearest = nearest_name(text, names);
    return fmt::format("no such choice '{}'; one of {}{}", text, fmt::join(names, ", "),
                       nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

// For an option that holds the name itself. The help shows the names: CLI11's own IsMember compares alike and guesses nothing.
inline CLI::Validator one_of(std::vector<std::string> names) {
    const std::string description = fmt::format("{{{}}}", fmt::join(names, ","));
    const auto check = [names = std::move(names)](std::string& text) {
        return std::ranges::count(names, text) > 0 ? std::string() : refuse_choice(text, names);
    };
    return CLI::Validator(check, description);
}

// Turns a name into the number of its enumerator, which is what CLI11 reads into an enum. Its own CheckedTransformer shows those
// numbers in the help and in errors.
template <typename Enum>
CLI::Validator one_of(const std::map<std::string, Enum>& choices) {
    std::vector<std::string> names;
    for (const auto& [name, value] : choices) names.push_back(name);
    const auto check = [choices, names](std::string& text) {
        const auto found = choices.find(text);
        if (found == choices.end()) return refuse_choice(text, names);
        text = std::to_string(static_cast<std::underlying_type_t<Enum>>(found->second));
        return std::string();
    };
    return CLI::Validator(check, "");
}

}  // namespace lockstep
