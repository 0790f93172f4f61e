#include <numeric>

#include <fmt/format.h>

#include "bench/allreduce_bench.h"
#include "configs/scalars.h"
#include "core/error.h"
#include "core/nearest.h"

namespace lockstep::bench {

namespace {

constexpr int64_t kFloatBytes = 4, kMostBytes = int64_t{1} << 30;

// The digits with each of the endings that sizes have.
std::string nearest_size(const std::string& text) {
    const std::string digits = text.substr(0, text.find_first_not_of("0123456789."));
    std::vector<std::string> known{"resnet50", "default"};
    for (const char* ending : {"KiB", "MiB", "GiB", "B"}) {
        if (!digits.empty()) known.push_back(digits + ending);
    }
    const std::string nearest = nearest_name(text, known);
    return nearest.empty() ? "sizes look like 4B, 64KiB, 1MiB, 102228128 or resnet50" : fmt::format("did you mean `{}`?", nearest);
}

}  // namespace

int64_t AllreduceUnit::byte_count() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}) * kFloatBytes; }

AllreduceUnit parse_unit(const std::string& text) {
    const bool only_digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    const std::optional<int64_t> bytes = parse_byte_count(only_digits ? text + "B" : text);
    if (!bytes) throw ConfigError(fmt::format("--sizes: `{}` is not a size; {}", text, nearest_size(text)));
    if (*bytes < kFloatBytes || *bytes > kMostBytes) {
        const int64_t nearest = *bytes < kFloatBytes ? kFloatBytes : kMostBytes;
        throw ConfigError(fmt::format("--sizes: {} is outside 4B to 1GiB; the nearest is {}", text, format_byte_count(nearest)));
    }
    if (*bytes % kFloatBytes != 0) {
        throw ConfigError(fmt::format("--sizes: {} bytes are no whole number of floats; the nearest is {}B", *bytes,
                                      (*bytes + kFloatBytes / 2) / kFloatBytes * kFloatBytes));
    }
    return {.label = format_byte_count(*bytes), .counts = {*bytes / kFloatBytes}};
}

}  // namespace lockstep::bench
