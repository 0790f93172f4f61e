#include "data_loader/image_list.h"

#include <optional>

#include <fmt/format.h>

#include "core/error.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr size_t kMaxLineBytes = 4096 + 64;

std::string_view trim(std::string_view text) {
    const size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

ImageListEntry parse_line(std::string_view line, int64_t number, const std::filesystem::path& path, int64_t allowed,
                          int first_label) {
    const auto fail = [&](std::string_view reason) {
        throw DataError(fmt::format("{}: line {}: \"{}\": {}; labels are integers in [{}, {}], a line is \"path label\"",
                                    path.string(), number, line, reason, first_label, allowed - 1 + first_label));
    };
    if (line.size() > kMaxLineBytes || line.find('\0') != std::string_view::npos) {
        throw DataError(fmt::format("{}: line {}: not text; is this an image list?", path.string(), number));
    }
    const size_t blank = line.find_last_of(kBlanks);
    if (blank == std::string_view::npos) fail("no label");
    const std::string_view label_text = line.substr(blank + 1);
    const std::optional<int32_t> label = parse_label(label_text, allowed, first_label);
    if (!label) fail(fmt::format("label \"{}\" is not allowed", label_text));
    return {std::string(trim(line.substr(0, blank))), *label, number};
}

}  // namespace

std::vector<ImageListEntry> parse_image_list(std::string_view text, const std::filesystem::path& path, int64_t allowed,
                                             int first_label) {
    std::vector<ImageListEntry> entries;
    int64_t number = 0;
    while (!text.empty()) {
        const size_t end = text.find('\n');
        const std::string_view line = trim(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        ++number;
        if (!line.empty()) entries.push_back(parse_line(line, number, path, allowed, first_label));
    }
    if (entries.empty()) throw DataError(fmt::format("{}: the image list has no line; expected \"path label\"", path.string()));
    return entries;
}

}  // namespace lockstep
