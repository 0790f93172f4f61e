// Where one step of one rank went: disjoint parts that add up to its wall time, to the nanosecond.
//
// Priority where spans overlap: compute (forward, backward, optimizer) > exposed transfer > arrival wait > data wait > other. So
// "exposed" is communication outside compute, whether the rank was blocked in finish_wait or not; what of a finish_wait no bucket
// explains is `other`, which is shown and never hidden. Waiting for the ranks that share out the update is arrival wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "report/intervals.h"
#include "report/record_file.h"

namespace lockstep {

enum class Part : uint8_t { data_wait, forward, backward, exposed_transfer, arrival_wait, optimizer, other };
constexpr size_t kPartCount = 7;
constexpr std::array<Part, kPartCount> kParts = {Part::data_wait,    Part::forward,   Part::backward, Part::exposed_transfer,
                                                 Part::arrival_wait, Part::optimizer, Part::other};
std::string_view part_key(Part part);    // "data_wait"
std::string_view part_title(Part part);  // "data wait"

template <typename Number>
struct PerPart {
    std::array<Number, kPartCount> values{};
    Number& operator[](Part part) { return values[static_cast<size_t>(part)]; }
    const Number& operator[](Part part) const { return values[static_cast<size_t>(part)]; }
};

// A bucket's communication with the last rank's arrival known: waiting in [start, arrived), moving bytes in [arrived, end).
struct BucketTimes {
    int32_t bucket = 0;
    int64_t ready_ns = 0, start_ns = 0, arrived_ns = 0, end_ns = 0;
};

// `derived_arrival_ns`: per bucket index the latest start over all ranks, used where the record itself does not know (0: none
// known). Buckets without start and end are left out; times are put in order.
std::vector<BucketTimes> bucket_times(const StoredStep& step, std::span<const int64_t> derived_arrival_ns);

struct StepBudget {
    int64_t wall_ns = 0;  // end - begin without pauses
    PerPart<int64_t> part_ns;
    int64_t transfer_ns = 0;         // all of it, hidden or not (interval union)
    int64_t hidden_transfer_ns = 0;  // behind compute
};

// `pauses` of this rank, in any order; what of them lies inside the step is cut out.
StepBudget budget_of_step(const StoredStep& step, std::span<const BucketTimes> buckets, std::span<const Span> pauses);

// Compute of the step (forward, backward, optimizer) as a set: what hides communication.
IntervalSet compute_of_step(const StoredStep& step);

}  // namespace lockstep
