#include "launch/host_list.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

constexpr size_t kMaxHosts = 1 << 17;

[[noreturn]] void fail(std::string_view text, std::string_view reason) {
    throw ConfigError(fmt::format("host list \"{}\": {}; set MASTER_ADDR to the host of rank 0 instead", text, reason));
}

std::optional<int> whole_number(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
    return value;
}

// Cuts at commas outside brackets.
std::vector<std::string_view> split_outside_brackets(std::string_view text) {
    std::vector<std::string_view> parts;
    size_t begin = 0;
    int depth = 0;
    for (size_t at = 0; at <= text.size(); ++at) {
        if (at == text.size() || (text[at] == ',' && depth == 0)) {
            parts.push_back(text.substr(begin, at - begin));
            begin = at + 1;
        } else if (text[at] == '[') {
            ++depth;
        } else if (text[at] == ']') {
            --depth;
        }
    }
    return parts;
}

// "001-003" or "7" -> texts of equal width.
std::vector<std::string> expand_range(std::string_view range, std::string_view whole) {
    const size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const auto low = whole_number(first);
    const auto high = dash == std::string_view::npos ? low : whole_number(range.substr(dash + 1));
    if (!low || !high || *high < *low || static_cast<size_t>(*high - *low) >= kMaxHosts)
        fail(whole, fmt::format("bad range \"{}\"", range));
    std::vector<std::string> texts;
    for (int value = *low; value <= *high; ++value) texts.push_back(fmt::format("{:0{}}", value, first.size()));
    return texts;
}

// All hosts of one entry, which may have several brackets.
std::vector<std::string> expand_entry(std::string_view entry, std::string_view whole) {
    std::vector<std::string> hosts{""};
    while (!entry.empty()) {
        const size_t open = std::min(entry.find('['), entry.size());
        for (std::string& host : hosts) host += entry.substr(0, open);
        entry.remove_prefix(open);
        if (entry.empty()) break;
        const size_t close = entry.find(']');
        if (close == std::string_view::npos) fail(whole, "a bracket is not closed");
        std::vector<std::string> longer;
        for (const std::string_view range : split_outside_brackets(entry.substr(1, close - 1))) {
            for (const std::string& number : expand_range(range, whole)) {
                for (const std::string& host : hosts) longer.push_back(host + number);
                if (longer.size() > kMaxHosts) fail(whole, "too many hosts");
            }
        }
        hosts = std::move(longer);
        entry.remove_prefix(close + 1);
    }
    return hosts;
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view text) {
    std::vector<std::string> hosts;
    for (const std::string_view entry : split_outside_brackets(text)) {
        if (entry.empty()) fail(text, "an entry is empty");
        for (std::string& host : expand_entry(entry, text)) hosts.push_back(std::move(host));
        if (hosts.size() > kMaxHosts) fail(text, "too many hosts");
    }
    return hosts;
}

std::vector<int> expand_counts(std::string_view text) {
    std::vector<int> counts;
    for (const std::string_view entry : split_outside_brackets(text)) {
        const size_t open = entry.find("(x");
        const auto count = whole_number(entry.substr(0, open));
        std::optional<int> times = 1;
        if (open != std::string_view::npos)
            times = entry.ends_with(')') ? whole_number(entry.substr(open + 2, entry.size() - open - 3)) : std::nullopt;
        if (!count || !times || static_cast<size_t>(*times) > kMaxHosts) {
            throw ConfigError(
                fmt::format("tasks per node \"{}\": cannot read \"{}\"; expected a form such as 2(x3),1", text, entry));
        }
        counts.insert(counts.end(), static_cast<size_t>(*times), *count);
    }
    return counts;
}

}  // namespace lockstep
