// What costs time, and the one sentence that says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/analysis.h"

namespace lockstep {

struct WorstBuckets {  // by sum over steady steps and ranks
    std::optional<int32_t> waited_for, exposed;
};

// Ceilings: the part's mean on the rank where it is largest, as if all of it went away. Largest first. The lateness of a straggler
// and the wait of its victims are the same milliseconds seen twice: the wait, which names both, comes first.
std::vector<Loss> rank_losses(const RunAnalysis& analysis, const WorstBuckets& worst);

std::string headline_sentence(const RunAnalysis& analysis, int64_t skip_first_steps);

}  // namespace lockstep
