#include "report/intervals.h"

#include <algorithm>

namespace lockstep {

IntervalSet merged(std::vector<Interval> intervals) {
    std::erase_if(intervals, [](const Interval& interval) { return interval.end_ns <= interval.begin_ns; });
    std::ranges::sort(intervals, {}, &Interval::begin_ns);
    IntervalSet set;
    for (const Interval& interval : intervals) {
        if (!set.empty() && interval.begin_ns <= set.back().end_ns) {
            set.back().end_ns = std::max(set.back().end_ns, interval.end_ns);
        } else {
            set.push_back(interval);
        }
    }
    return set;
}

IntervalSet intersection(const IntervalSet& a, const IntervalSet& b) {
    IntervalSet set;
    for (size_t in_a = 0, in_b = 0; in_a < a.size() && in_b < b.size();) {
        const int64_t begin_ns = std::max(a[in_a].begin_ns, b[in_b].begin_ns);
        const int64_t end_ns = std::min(a[in_a].end_ns, b[in_b].end_ns);
        if (begin_ns < end_ns) set.push_back({begin_ns, end_ns});
        if (a[in_a].end_ns < b[in_b].end_ns) {
            ++in_a;
        } else {
            ++in_b;
        }
    }
    return set;
}

IntervalSet difference(const IntervalSet& a, const IntervalSet& b) {
    IntervalSet set;
    size_t in_b = 0;
    for (Interval rest : a) {
        while (in_b < b.size() && b[in_b].end_ns <= rest.begin_ns) ++in_b;
        for (size_t cut = in_b; cut < b.size() && b[cut].begin_ns < rest.end_ns; ++cut) {
            if (rest.begin_ns < b[cut].begin_ns) set.push_back({rest.begin_ns, b[cut].begin_ns});
            rest.begin_ns = b[cut].end_ns;
        }
        if (rest.begin_ns < rest.end_ns) set.push_back(rest);
    }
    return set;
}

IntervalSet united(const IntervalSet& a, const IntervalSet& b) {
    std::vector<Interval> all(a);
    all.insert(all.end(), b.begin(), b.end());
    return merged(std::move(all));
}

int64_t length_ns(const IntervalSet& set) {
    int64_t length = 0;
    for (const Interval& interval : set) length += interval.end_ns - interval.begin_ns;
    return length;
}

}  // namespace lockstep
