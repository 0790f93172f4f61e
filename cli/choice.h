// An option that takes one of a few names, told alike in help and errors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace lockstep::cli {

// `value` keeps what it has unless the option is given; it must outlive the parsing.
template <typename Value>
CLI::Option* add_choice(CLI::App& command, const std::string& flag, Value& value,
                        const std::vector<std::pair<std::string, Value>>& choices, const std::string& description) {
    std::vector<std::string> names;
    for (const auto& [name, choice] : choices) names.push_back(name);
    const auto choose = [&value, choices](const std::string& text) {
        for (const auto& [name, choice] : choices) {
            if (name == text) value = choice;
        }
    };
    return command.add_option_function<std::string>(flag, choose, description)->check(CLI::IsMember(names));
}

}  // namespace lockstep::cli
