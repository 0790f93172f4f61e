// What can be wrong with one rank's program by itself.
#pragma once

#include <string>

#include "collectives/schedule/checker.h"

namespace lockstep::schedule {

// A finding of the checker, on its way from where it is found to prove().
struct Finding {
    Fault fault = Fault::none;
    std::string text;
};

// Throws a Finding: malformed, hazard or lanes_overlap.
void check_form(const Program& program, int rank, int rank_count, int64_t count);

}  // namespace lockstep::schedule
