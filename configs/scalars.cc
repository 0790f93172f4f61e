#include "configs/scalars.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {

namespace {

struct Unit {
    std::string_view name;
    double factor;
};
// Longest name first where one ends another ("MiB" before "B").
constexpr std::array<Unit, 7> kByteUnits{
    {{"KiB", 1024.0}, {"MiB", 1024.0 * 1024}, {"GiB", 1024.0 * 1024 * 1024}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1.0}}};
constexpr std::array<Unit, 6> kTimeUnits{{{"min", 60e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1.0}, {"s", 1e9}, {"h", 3600e9}}};

template <typename Integer>
std::optional<Integer> parse_digits(std::string_view text) {
    Integer value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

size_t digits_at(std::string_view text, size_t begin) {
    size_t end = begin;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    return end - begin;
}

// [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?, the core schema's float without .inf and .nan.
bool is_core_number(std::string_view text) {
    size_t at = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    const size_t whole = digits_at(text, at);
    at += whole;
    if (at < text.size() && text[at] == '.') {
        const size_t fraction = digits_at(text, at + 1);
        if (whole + fraction == 0) return false;
        at += 1 + fraction;
    } else if (whole == 0) {
        return false;
    }
    if (at == text.size()) return true;
    if (text[at] != 'e' && text[at] != 'E') return false;
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    const size_t exponent = digits_at(text, at);
    return exponent > 0 && at + exponent == text.size();
}

template <size_t N>
std::optional<int64_t> parse_with_unit(std::string_view text, const std::array<Unit, N>& units) {
    for (const Unit& unit : units) {
        if (!text.ends_with(unit.name)) continue;
        const auto number = parse_number(text.substr(0, text.size() - unit.name.size()));
        if (!number || *number < 0.0) return std::nullopt;
        const double value = *number * unit.factor;
        if (value > 4e18 || value != std::floor(value)) return std::nullopt;
        return static_cast<int64_t>(value);
    }
    return std::nullopt;
}

}  // namespace

std::optional<bool> parse_bool(std::string_view text) {
    if (text == "true") return true;
    if (text == "false") return false;
    return std::nullopt;
}

std::optional<int64_t> parse_integer(std::string_view text) {
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    return parse_digits<int64_t>(text);
}

std::optional<uint64_t> parse_unsigned(std::string_view text) { return parse_digits<uint64_t>(text); }

std::optional<double> parse_number(std::string_view text) {
    if (!is_core_number(text)) return std::nullopt;
    if (text[0] == '+') text.remove_prefix(1);
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
    return value;
}

std::optional<Duration> parse_duration(std::string_view text) {
    const bool epochs = text.ends_with("ep");
    if (!epochs && !text.ends_with("it")) return std::nullopt;
    const auto number = parse_number(text.substr(0, text.size() - 2));
    if (!number || *number < 0.0) return std::nullopt;
    if (!epochs && *number != std::floor(*number)) return std::nullopt;
    return Duration{epochs ? Duration::Unit::epochs : Duration::Unit::iterations, *number};
}

std::optional<int64_t> parse_byte_count(std::string_view text) { return parse_with_unit(text, kByteUnits); }

std::optional<int64_t> parse_nanoseconds(std::string_view text) { return parse_with_unit(text, kTimeUnits); }

std::string format_number(double value) { return fmt::format("{}", value); }

std::string format_duration(const Duration& duration) {
    return fmt::format("{}{}", duration.amount, duration.unit == Duration::Unit::epochs ? "ep" : "it");
}

std::string format_byte_count(int64_t bytes) {
    if (bytes > 0 && bytes % (int64_t{1} << 20) == 0) return fmt::format("{}MiB", bytes >> 20);
    if (bytes > 0 && bytes % 1024 == 0) return fmt::format("{}KiB", bytes >> 10);
    return fmt::format("{}B", bytes);
}

std::string format_nanoseconds(int64_t nanoseconds) {
    if (nanoseconds > 0 && nanoseconds % 1'000'000'000 == 0) return fmt::format("{}s", nanoseconds / 1'000'000'000);
    if (nanoseconds > 0 && nanoseconds % 1'000'000 == 0) return fmt::format("{}ms", nanoseconds / 1'000'000);
    if (nanoseconds > 0 && nanoseconds % 1'000 == 0) return fmt::format("{}us", nanoseconds / 1'000);
    return fmt::format("{}ns", nanoseconds);
}

}  // namespace lockstep
