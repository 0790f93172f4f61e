// Sets of half-open time intervals. Overlapping spans are merged before anything is subtracted, so no moment counts twice.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

struct Interval {
    int64_t begin_ns = 0, end_ns = 0;
    bool operator==(const Interval&) const = default;
};

// Sorted, disjoint, none empty.
using IntervalSet = std::vector<Interval>;

IntervalSet merged(std::vector<Interval> intervals);  // any order, may overlap; empty and inverted ones vanish
IntervalSet intersection(const IntervalSet& a, const IntervalSet& b);
IntervalSet difference(const IntervalSet& a, const IntervalSet& b);
IntervalSet united(const IntervalSet& a, const IntervalSet& b);
int64_t length_ns(const IntervalSet& set);

}  // namespace lockstep
