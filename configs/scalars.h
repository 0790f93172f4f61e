// Text <-> value for the kinds of scalars a configuration holds. Pure. Numbers follow the YAML 1.2 core schema, so 1e-4, 1.e-4 and
// .0001 are numbers; only `true` and `false` are booleans. nullopt: the text is not such a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "configs/experiment.h"

namespace lockstep {

std::optional<bool> parse_bool(std::string_view text);
std::optional<int64_t> parse_integer(std::string_view text);      // decimal digits with an optional sign
std::optional<uint64_t> parse_unsigned(std::string_view text);    // decimal digits
std::optional<double> parse_number(std::string_view text);        // finite
std::optional<Duration> parse_duration(std::string_view text);    // "90ep", "0.5ep", "1000it"; not negative, whole iterations
std::optional<int64_t> parse_byte_count(std::string_view text);   // "512B", "64KiB", "8MiB", "1.5GiB"; decimal "25MB"
std::optional<int64_t> parse_nanoseconds(std::string_view text);  // "10s", "500ms", "20us", "5ns", "2min", "1h"

// The shortest text that reads back as the same value.
std::string format_number(double value);
std::string format_duration(const Duration& duration);
std::string format_byte_count(int64_t bytes);
std::string format_nanoseconds(int64_t nanoseconds);

}  // namespace lockstep
