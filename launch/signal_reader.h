// The launcher's signals as data, read in its one loop instead of handled in the midst of it.
#pragma once

#include <span>

#include "launch/child_process.h"

namespace lockstep {

// Blocks the given signals, for this thread and those it starts from now on, and for good: a signal that comes after the last rank
// has ended, a second Ctrl-C above all, must not take the place of the exit code that the process is about to return. SIGPIPE is
// ignored: a closed screen does not end the job. start_child gives its children a fresh mask.
class SignalReader {
public:
    explicit SignalReader(std::span<const int> signals);  // DeviceError when the system gives no descriptor

    int descriptor() const { return reader_.descriptor(); }
    int next();  // 0: none

private:
    Pipe reader_;
};

}  // namespace lockstep
