#include "configs/nearest.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace lockstep {

namespace {

std::string normalized(std::string_view name) {
    std::string text(name);
    for (char& letter : text) letter = letter == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    return text;
}

std::vector<std::string> words(std::string_view name) {
    std::vector<std::string> result(1);
    for (const char letter : normalized(name)) {
        if (std::isalnum(static_cast<unsigned char>(letter)) != 0) {
            result.back() += letter;
        } else if (!result.back().empty()) {
            result.emplace_back();
        }
    }
    return result;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b.size(); ++j) {
            const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row[b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
    if (name.size() > 64) return {};
    const std::string wanted = normalized(name);
    size_t best_distance = wanted.size() <= 4 ? 2 : 3;
    std::string best;
    for (const std::string& candidate : known) {
        const size_t distance = edit_distance(wanted, normalized(candidate));
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

bool share_a_word(std::string_view a, std::string_view b) {
    const auto of_a = words(a), of_b = words(b);
    return std::any_of(of_a.begin(), of_a.end(), [&of_b](const std::string& word) {
        return word.size() > 2 && std::find(of_b.begin(), of_b.end(), word) != of_b.end();
    });
}

}  // namespace lockstep
