// INT, TERM and USR1 as a wish that the next step carries to all ranks (trainer/control.h).
#pragma once

#include <csignal>

#include "trainer/control.h"

namespace lockstep {

// Catches the three signals while it lives and restores the former handlers afterwards. One at a time per process. The handler only
// sets a flag; a second INT ends the process at once with 130 and without a checkpoint.
class StopSignals {
public:
    StopSignals();
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    StopRequest request() const noexcept;  // the strongest wish so far

private:
    struct sigaction old_interrupt_ {
    }, old_terminate_{}, old_requeue_{};
};

}  // namespace lockstep
