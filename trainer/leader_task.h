// Long work of rank 0 alone (a checkpoint, the report) during which the others must not take it for dead.
#pragma once

#include <functional>
#include <string_view>

#include "collectives/communicator.h"

namespace lockstep {

// Collective. Rank 0 runs `task` on a helper thread; until it is done all ranks exchange a byte a few times per `timeout_ms`, so
// that the deadline of waits counts silence, not work. A failure of the task is thrown on all ranks as a CommonFailure with its
// exit code and message.
void run_on_leader(Communicator& communicator, int64_t timeout_ms, std::string_view what, int64_t step,
                   const std::function<void()>& task);

}  // namespace lockstep
