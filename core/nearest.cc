#include "core/nearest.h"

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
    // rows[i][j]: distance of a's first i and b's first j letters.
    std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
    std::iota(rows[0].begin(), rows[0].end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
        rows[i][0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t substituted = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            rows[i][j] = std::min({substituted, rows[i][j - 1] + 1, rows[i - 1][j] + 1});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
        }
    }
    return rows[a.size()][b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
    if (name.size() > 64) return {};
    const std::string wanted = normalized(name);
    size_t best_distance = std::min<size_t>(wanted.size() / 3, 2) + 1;
    std::string best;
    for (const std::string& candidate : known) {
        const size_t distance = edit_distance(wanted, normalized(candidate));
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    if (!best.empty()) return best;
    const auto longer = std::find_if(known.begin(), known.end(), [&wanted](const std::string& candidate) {
        const std::string text = normalized(candidate);
        return std::min(text.size(), wanted.size()) >= 4 && (text.starts_with(wanted) || wanted.starts_with(text));
    });
    return longer == known.end() ? std::string() : *longer;
}

bool share_a_word(std::string_view a, std::string_view b) {
    const auto of_a = words(a), of_b = words(b);
    return std::any_of(of_a.begin(), of_a.end(), [&of_b](const std::string& word) {
        return word.size() > 2 && std::find(of_b.begin(), of_b.end(), word) != of_b.end();
    });
}

}  // namespace lockstep
