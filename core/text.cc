#include "core/text.h"

#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

namespace lockstep {

namespace {

// Bytes of the well-formed UTF-8 sequence at the begin of `bytes`; 0: there is none. Overlong forms, surrogates and what lies above
// U+10FFFF are none: the second byte's range depends on the first.
size_t sequence_length(std::string_view bytes) {
    const auto at = [&](size_t place) { return place < bytes.size() ? static_cast<uint8_t>(bytes[place]) : 0U; };
    const unsigned first = at(0);
    if (first < 0x80) return 1;
    const size_t length = first >= 0xC2 && first <= 0xDF ? 2 : (first >> 4) == 0xE ? 3 : first >= 0xF0 && first <= 0xF4 ? 4 : 0;
    if (length == 0) return 0;
    const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at(1) < low || at(1) > high) return 0;
    for (size_t place = 2; place < length; ++place) {
        if ((at(place) & 0xC0) != 0x80) return 0;
    }
    return length;
}

bool is_control(char letter) { return static_cast<uint8_t>(letter) < 0x20 || letter == 0x7F; }

}  // namespace

std::string printable(std::string_view bytes) {
    std::string text;
    while (!bytes.empty()) {
        const size_t length = sequence_length(bytes);
        if (length == 0 || is_control(bytes.front())) {
            text += fmt::format("\\x{:02X}", static_cast<uint8_t>(bytes.front()));
            bytes.remove_prefix(1);
        } else {
            text += bytes.substr(0, length);
            bytes.remove_prefix(length);
        }
    }
    return text;
}

std::string counted(int64_t count, std::string_view noun) { return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s"); }

std::string data_size(int64_t bytes) {
    if (bytes < 1000) return fmt::format("{} B", bytes);
    if (bytes < 100'000) return fmt::format("{:.1f} kB", 1e-3 * static_cast<double>(bytes));
    return fmt::format("{:.2f} MB", 1e-6 * static_cast<double>(bytes));
}

}  // namespace lockstep
