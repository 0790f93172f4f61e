#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace lockstep::bench {

namespace {

double quantile(const std::vector<double>& sorted, double share) {
    const double rank = share * static_cast<double>(sorted.size() - 1);
    const size_t below = static_cast<size_t>(rank);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (rank - std::floor(rank)) * (sorted[above] - sorted[below]);
}

}  // namespace

Spread spread_of(std::vector<double> values) {
    if (values.empty()) return {};
    std::ranges::sort(values);
    return {.median = quantile(values, 0.5),
            .p10 = quantile(values, 0.1),
            .p90 = quantile(values, 0.9),
            .p99 = quantile(values, 0.99),
            .smallest = values.front(),
            .largest = values.back()};
}

}  // namespace lockstep::bench
