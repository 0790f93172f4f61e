// Small sums over measurements.
#pragma once

#include <vector>

namespace lockstep::bench {

struct Spread {
    double median = 0.0, p10 = 0.0, p90 = 0.0, p99 = 0.0, smallest = 0.0, largest = 0.0;
};
Spread spread_of(std::vector<double> values);  // linear interpolation between ranks; zeros for none

}  // namespace lockstep::bench
