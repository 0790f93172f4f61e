// Who makes the others wait, and why. Lateness of a rank in a bucket is its start minus the median start of the others, counted
// only for the rank that came last: a rank that waits is a victim, not a straggler.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/step_budget.h"

namespace lockstep {

// One rank's view of one step, as the finder needs it.
struct RankStep {
    int64_t begin_ns = 0;
    StepBudget budget;
    std::vector<BucketTimes> buckets;
};

struct Straggler {
    double last_share = 0.0;        // of the steps in which somebody was last
    double mean_lateness_ns = 0.0;  // over the steps in which this rank was last
    std::string cause;              // empty: not late often or long enough to be named
};

class StragglerFinder {
public:
    explicit StragglerFinder(size_t rank_count) : ranks_(rank_count) {}
    void add(std::span<const RankStep> ranks);  // all ranks of one step, clocks aligned
    // nullopt: no step with communication of several ranks. `step_ns`: mean step, for what is worth naming.
    std::optional<std::vector<Straggler>> result(double step_ns) const;

private:
    // How much longer than the others' median a rank took, summed over the steps in which it was last.
    struct Excess {
        double data_wait_ns = 0.0, compute_ns = 0.0, optimizer_ns = 0.0, other_ns = 0.0, late_begin_ns = 0.0;
    };
    struct Tally {
        int64_t times_last = 0;
        double lateness_ns = 0.0;
        Excess excess;
    };
    static std::string cause(const Tally& tally);

    std::vector<Tally> ranks_;
    int64_t steps_ = 0;
};

}  // namespace lockstep
