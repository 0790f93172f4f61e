#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <unordered_set>

#include <fmt/format.h>

#include "core/error.h"
#include "core/text.h"
#include "data_loader/sources/sources.h"

namespace lockstep {

namespace {

struct BraceRange {
    int64_t first = 0, last = 0;
    size_t digits = 0;
};

constexpr size_t kMaxShards = 1'000'000;

struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) close(number);
    }
};

std::optional<BraceRange> parse_range(std::string_view text) {
    const size_t dots = text.find("..");
    if (dots == std::string_view::npos) return std::nullopt;
    const std::string_view first = text.substr(0, dots), last = text.substr(dots + 2);
    BraceRange range{.digits = first.size()};
    const auto parse = [](std::string_view digits, int64_t& value) {
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return error == std::errc() && end == digits.data() + digits.size() && value >= 0;
    };
    if (!parse(first, range.first) || !parse(last, range.last) || range.last < range.first) return std::nullopt;
    return range;
}

std::vector<std::string> alternatives(std::string_view inside, std::string_view pattern) {
    std::vector<std::string> texts;
    if (const std::optional<BraceRange> range = parse_range(inside)) {
        if (static_cast<size_t>(range->last - range->first) >= kMaxShards) {
            throw ConfigError(fmt::format("{}: the range {{{}}} names more than {} files", pattern, inside, kMaxShards));
        }
        for (int64_t number = range->first; number <= range->last; ++number) {
            texts.push_back(fmt::format("{:0{}}", number, range->digits));
        }
        return texts;
    }
    if (inside.find("..") != std::string_view::npos) {
        throw ConfigError(fmt::format("{}: {{{}}} is not an increasing range of numbers such as {{000..127}}", pattern, inside));
    }
    while (true) {
        const size_t comma = inside.find(',');
        texts.emplace_back(inside.substr(0, comma));
        if (comma == std::string_view::npos) return texts;
        inside.remove_prefix(comma + 1);
    }
}

}  // namespace

std::vector<std::string> expand_braces(std::string_view pattern) {
    std::vector<std::string> results{""};
    std::string_view rest = pattern;
    while (!rest.empty()) {
        const size_t open = rest.find('{');
        for (std::string& result : results) result += rest.substr(0, open);
        if (open == std::string_view::npos) break;
        const size_t close = rest.find('}', open);
        if (close == std::string_view::npos) throw ConfigError(fmt::format("{}: a brace is not closed", pattern));
        const std::vector<std::string> texts = alternatives(rest.substr(open + 1, close - open - 1), pattern);
        if (texts.size() * results.size() > kMaxShards) {
            throw ConfigError(fmt::format("{}: the braces name more than {} files", pattern, kMaxShards));
        }
        std::vector<std::string> longer;
        for (const std::string& result : results) {
            for (const std::string& text : texts) longer.push_back(result + text);
        }
        results = std::move(longer);
        rest.remove_prefix(close + 1);
    }
    return results;
}

void read_into(const std::string& path, std::vector<std::byte>& storage) {
    const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    struct stat status {};
    if (file.number < 0 || fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode)) {
        throw DataError(fmt::format("cannot read {}: {}; repair or remove it", path,
                                    file.number >= 0 ? "not a regular file" : std::strerror(errno)));
    }
    storage.resize(static_cast<size_t>(status.st_size));
    // All of it at once, not in pieces that grow as the system learns that it is read in turn.
    constexpr size_t kOnePiece = size_t{1} << 17;
    if (storage.size() > kOnePiece) posix_fadvise(file.number, 0, 0, POSIX_FADV_WILLNEED);
    size_t done = 0;
    while (done < storage.size()) {
        const ssize_t count = ::read(file.number, storage.data() + done, storage.size() - done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw DataError(fmt::format("cannot read {}: {}; repair or remove it", path, std::strerror(errno)));
        if (count == 0) break;
        done += static_cast<size_t>(count);
    }
    storage.resize(done);  // shorter when the file shrank meanwhile: the decoder will say so
}

bool has_image_suffix(std::string_view name) {
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return false;
    std::string suffix(name.substr(dot + 1));
    std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return suffix == "jpg" || suffix == "jpeg" || suffix == "png";
}

ClassMap map_classes(const std::vector<std::string>& found, const SourceOptions& options, const std::string& where) {
    std::vector<std::string> shown;  // checkpoints, reports and class_names.txt are text
    std::unordered_set<std::string> distinct;
    for (const std::string& name : found) {
        shown.push_back(printable(name));
        if (!distinct.insert(shown.back()).second) {
            throw DataError(fmt::format("{}: two classes are both written \"{}\"; rename one", where, shown.back()));
        }
    }
    ClassMap map{.names = options.class_names.empty() ? shown : options.class_names, .label_of_found = {}};
    if (options.num_classes > 0 && static_cast<int64_t>(map.names.size()) != options.num_classes) {
        throw DataError(fmt::format("{}: {} classes found but num_classes is {}; set model.num_classes or check the path", where,
                                    map.names.size(), options.num_classes));
    }
    for (const std::string& name : shown) {
        const auto place = std::find(map.names.begin(), map.names.end(), name);
        if (place == map.names.end()) {
            throw DataError(
                fmt::format("{}: class \"{}\" is not among the {} classes of the training set; remove it or add it there", where,
                            name, map.names.size()));
        }
        map.label_of_found.push_back(static_cast<int32_t>(place - map.names.begin()));
    }
    return map;
}

int64_t allowed_labels(const SourceOptions& options) { return options.num_classes > 0 ? options.num_classes : kMaxClasses; }

std::optional<int32_t> parse_label(std::string_view text, int64_t allowed, int first_label) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < first_label || value - first_label >= allowed) {
        return std::nullopt;
    }
    return static_cast<int32_t>(value - first_label);
}

int32_t IntegerLabels::check(int64_t stored, const std::filesystem::path& path, int64_t record, uint64_t offset) {
    if (stored < first_ || stored - first_ >= allowed_) {
        throw DataError(
            fmt::format("{}: record {} at offset {}: label {} is outside [{}, {}]; repair the file, or set first_label or "
                        "model.num_classes",
                        path.string(), record, offset, stored, first_, allowed_ - 1 + first_));
    }
    max_label_ = std::max(max_label_, stored - first_);
    return static_cast<int32_t>(stored - first_);
}

void check_byte_label(unsigned label, int64_t allowed, const std::filesystem::path& path, int64_t record, uint64_t offset) {
    if (label < allowed) return;
    throw DataError(
        fmt::format("{}: record {} at offset {}: label {} is outside [0, {}]; the file is damaged or model.num_classes is "
                    "wrong",
                    path.string(), record, offset, label, allowed - 1));
}

}  // namespace lockstep
