// What a buffer holds, as stretches of elements with equal content. Plain data for the checker.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/schedule/schedule.h"

namespace lockstep::schedule {

struct Stretch {
    Range range;
    int32_t content = 0;
};

// Content of all elements of [0, count); few stretches, so a sorted list is fastest.
class IntervalMap {
public:
    IntervalMap(int64_t count, int32_t content);

    std::vector<Stretch> read(Range range) const;  // in order, without gaps
    void read(Range range, std::vector<Stretch>& into) const;
    void write(const Stretch& stretch);

private:
    size_t index_at(int64_t element) const;

    std::vector<int64_t> firsts_;  // of the stretches; ends with the number of elements
    std::vector<int32_t> contents_;
};

}  // namespace lockstep::schedule
