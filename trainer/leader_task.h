// Long work of rank 0 alone (a checkpoint, the report) during which the others must not take it for dead.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "core/error.h"

namespace lockstep {

// Collective. Rank 0 runs `task` on a helper thread; until it is done all ranks exchange a byte a few times per `timeout_ms`, so
// that the deadline of waits counts silence, not work. A failure of the task is thrown on all ranks as a CommonFailure with its
// exit code and message.
void run_on_leader(Communicator& communicator, int64_t timeout_ms, std::string_view what, int64_t step,
                   const std::function<void()>& task);

// Collective. The waiting alone: until `done`, which rank 0 asks again and again and which may wait for `patience` itself, says so.
void await_leader(Communicator& communicator, int64_t timeout_ms, std::string_view what, int64_t step,
                  const std::function<bool(std::chrono::milliseconds patience)>& done);

// How something ended on rank 0.
struct Outcome {
    ExitCode code = ExitCode::kDone;
    std::string message;  // of a failure
};
Outcome outcome_of(const std::function<void()>& task);
// Collective. Throws rank 0's failure on all ranks as a CommonFailure; returns when there was none.
void share_outcome(Communicator& communicator, const Outcome& leaders, std::string_view what, int64_t step);

}  // namespace lockstep
