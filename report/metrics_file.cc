#include "report/metrics_file.h"

#include <cmath>
#include <iterator>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "core/files.h"

namespace lockstep {

namespace {

void append_json_string(std::string_view text, fmt::memory_buffer& out) {
    out.push_back('"');
    for (const char symbol : text) {
        const auto code = static_cast<unsigned char>(symbol);
        if (symbol == '"' || symbol == '\\') out.push_back('\\');
        if (code < 0x20) {
            fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
        } else {
            out.push_back(symbol);
        }
    }
    out.push_back('"');
}

void append_json_number(double value, fmt::memory_buffer& out) {
    if (std::isfinite(value)) {
        fmt::format_to(std::back_inserter(out), "{}", value);  // the shortest text that reads back to the same bits
    } else {
        fmt::format_to(std::back_inserter(out), "null");
    }
}

std::optional<MetricsLine> parse_line(std::string_view text) {
    const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
    MetricsLine line{.step = json["step"].get<int64_t>()};
    for (const auto& [key, value] : json.items()) {
        if (key == "step" || !value.is_number()) continue;
        if (key == "epoch") {
            line.epoch = value.get<double>();
        } else {
            line.values.emplace_back(key, value.get<double>());
        }
    }
    return line;
}

// Calls use(line text without newline, parsed) for each whole line that is one of ours.
template <typename Use>
void for_each_line(std::string_view content, Use use) {
    while (!content.empty()) {
        const size_t end = content.find('\n');
        if (end == std::string_view::npos) return;  // cut by a kill
        const std::string_view text = content.substr(0, end);
        if (auto line = parse_line(text)) use(text, std::move(*line));
        content.remove_prefix(end + 1);
    }
}

}  // namespace

void format_metrics_line(const MetricsLine& line, fmt::memory_buffer& out) {
    fmt::format_to(std::back_inserter(out), "{{\"step\":{},\"epoch\":", line.step);
    append_json_number(line.epoch, out);
    for (const auto& [key, value] : line.values) {
        out.push_back(',');
        append_json_string(key, out);
        out.push_back(':');
        append_json_number(value, out);
    }
    out.push_back('}');
    out.push_back('\n');
}

void keep_metrics_before(const std::filesystem::path& path, int64_t start_step) {
    if (!fs::exists(path)) return;
    const std::string content = read_file(path);
    std::string kept;
    for_each_line(content, [&](std::string_view text, const MetricsLine& line) {
        if (line.step < start_step) kept.append(text).push_back('\n');
    });
    if (kept != content) write_file_atomically(path, kept);
}

std::vector<MetricsLine> read_metrics(const std::filesystem::path& path) {
    std::vector<MetricsLine> lines;
    if (!fs::exists(path)) return lines;
    for_each_line(read_file(path), [&](std::string_view, MetricsLine line) { lines.push_back(std::move(line)); });
    return lines;
}

}  // namespace lockstep
