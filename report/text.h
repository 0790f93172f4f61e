// Numbers as people read them; what is not known is "n/a".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "report/records.h"

namespace lockstep {

inline std::string fixed(std::optional<double> value, int digits, std::string_view unit = "") {
    return value ? fmt::format("{:.{}f}{}", *value, digits, unit) : "n/a";
}
inline std::string percent(std::optional<double> share, int digits = 1) {
    return share ? fmt::format("{:.{}f} %", 100.0 * *share, digits) : "n/a";
}
inline std::string mebibytes(int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20)); }

inline std::string_view pause_name(Span::Kind kind) { return kind == Span::Kind::evaluation ? "evaluation" : "checkpoint"; }

}  // namespace lockstep
