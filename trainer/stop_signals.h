// INT, TERM and USR1 as a wish to stop, which the next step carries to all ranks (trainer/control.h).
#pragma once

#include <csignal>

namespace lockstep {

// Catches the three signals while it lives and restores the former handlers afterwards. One at a time per process. The handler only
// notes the wish. The same signal once more, half a second later or more, ends the process at once and without a checkpoint: 130
// after INT, else 143. (Sooner it is the same wish told twice: a scheduler signals every process, and the launcher passes on what
// it gets.)
class StopSignals {
public:
    StopSignals();
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    bool requested() const noexcept;

private:
    struct sigaction old_interrupt_ {
    }, old_terminate_{}, old_requeue_{};
};

}  // namespace lockstep
