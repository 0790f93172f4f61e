#include "collectives/schedule/shape.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>

namespace lockstep::schedule {

namespace {

constexpr int kWidestPrime = 7;  // an odd prime as a round of its own is cheaper than folding up to about here

bool is_allowed(int factor, int radix) { return factor <= radix || factor == 3 || factor == 5 || factor == kWidestPrime; }

struct Factors {
    std::vector<int> list;
    int sum = std::numeric_limits<int>::max();

    bool better_than(const Factors& other) const {
        if (other.sum == std::numeric_limits<int>::max()) return true;
        return std::tuple(list.size(), sum) < std::tuple(other.list.size(), other.sum);
    }
};

// Tries all products in falling order of factors, so each set is met once.
void search(int rest, int largest, int radix, Factors& taken, Factors& best) {
    if (rest == 1) {
        if (taken.better_than(best)) best = taken;
        return;
    }
    if (!best.list.empty() && taken.list.size() >= best.list.size()) return;
    for (int factor = std::min(rest, largest); factor >= 2; --factor) {
        if (rest % factor != 0 || !is_allowed(factor, radix)) continue;
        taken.list.push_back(factor);
        taken.sum += factor;
        search(rest / factor, factor, radix, taken, best);
        taken.sum -= factor;
        taken.list.pop_back();
    }
}

Factors best_factors(int participants, int radix) {
    Factors best;
    Factors taken{.sum = 0};
    search(participants, std::max(radix, kWidestPrime), radix, taken, best);
    return best;
}

Shape shape_of(int participants, Factors factors) {
    std::sort(factors.list.begin(), factors.list.end(), [](int left, int right) {
        const auto is_odd_one = [](int factor) { return !std::has_single_bit(static_cast<unsigned>(factor)); };
        return std::tuple(is_odd_one(left), left) < std::tuple(is_odd_one(right), right);
    });
    return {.participants = participants, .factors = std::move(factors.list)};
}

}  // namespace

Shape shape_for(int rank_count, int radix) {
    if (rank_count == 1) return {};
    if (radix >= rank_count) return {.participants = rank_count, .factors = {rank_count}};
    Factors best = best_factors(rank_count, radix);
    if (!best.list.empty()) return shape_of(rank_count, std::move(best));
    int participants = 1;
    for (int fewer = rank_count - 1; 2 * fewer >= rank_count; --fewer) {
        Factors factors = best_factors(fewer, radix);
        if (factors.list.empty() || !factors.better_than(best)) continue;
        best = std::move(factors);
        participants = fewer;
    }
    return shape_of(participants, std::move(best));
}

}  // namespace lockstep::schedule
