// An option of the command line that is one of a few named values.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <type_traits>

namespace lockstep {

// Turns a name into the number of its enumerator, which is what CLI11 reads into an enum. Its own CheckedTransformer shows those
// numbers in the help and in errors.
template <typename Enum>
CLI::Validator one_of(const std::map<std::string, Enum>& choices) {
    std::string names;
    for (const auto& [name, value] : choices) names += (names.empty() ? "" : ", ") + name;
    const auto check = [choices, names](std::string& text) {
        const auto found = choices.find(text);
        if (found == choices.end()) return fmt::format("no such choice '{}'; one of {}", text, names);
        text = std::to_string(static_cast<std::underlying_type_t<Enum>>(found->second));
        return std::string();
    };
    return CLI::Validator(check, "");
}

}  // namespace lockstep
