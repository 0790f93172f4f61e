#include "core/text.h"

#include <algorithm>
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

// Control characters, and what moves or ends a line on a screen all the same: U+0080 to U+009F, the separators and marks of
// direction of U+2028 to U+202E and U+2066 to U+2069.
bool is_control(std::string_view sequence) {
    const auto first = static_cast<uint8_t>(sequence.front());
    if (sequence.size() == 1) return first < 0x20 || first == 0x7F;
    const auto second = static_cast<uint8_t>(sequence[1]);
    if (sequence.size() == 2) return first == 0xC2 && second < 0xA0;
    const auto third = static_cast<uint8_t>(sequence[2]);
    if (sequence.size() != 3 || first != 0xE2) return false;
    return (second == 0x80 && third >= 0xA8 && third <= 0xAE) || (second == 0x81 && third >= 0xA6 && third <= 0xA9);
}

}  // namespace

std::string printable(std::string_view bytes) {
    std::string text;
    while (!bytes.empty()) {
        const size_t length = sequence_length(bytes);
        const std::string_view sequence = bytes.substr(0, std::max<size_t>(length, 1));
        if (length == 0 || is_control(sequence)) {
            for (const char byte : sequence) text += fmt::format("\\x{:02X}", static_cast<uint8_t>(byte));
        } else {
            text += sequence;
        }
        bytes.remove_prefix(sequence.size());
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
