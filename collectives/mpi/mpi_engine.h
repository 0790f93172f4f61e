// The backend `mpi`: collectives over MPI's point-to-point calls. MPI moves the bytes; who sends what, the sums, deadlines and
// errors are ours, so the bits equal those of the native backend.
#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "collectives/engine.h"
#include "collectives/transport.h"

namespace lockstep {

// Collective over all ranks, which have met already. ConfigError when no MPI has started this process, its module is not built, or
// its rank and size are not this world's; CommError when the ranks cannot connect.
std::unique_ptr<Engine> make_mpi_engine(const World& world, const CommunicatorOptions& options);

// The transport alone, for an engine that brings its own schedules. Same errors.
std::unique_ptr<Transport> make_mpi_transport(const World& world, const CommunicatorOptions& options);

// Collectives over any transport in direct exchanges: every rank sends each peer that peer's slice, sums its own over all ranks,
// and sends the sum to everybody. Moves 2 (p-1)/p of the data in two steps.
std::unique_ptr<Engine> make_exchange_engine(const World& world, std::unique_ptr<Transport> transport,
                                             const CommunicatorOptions& options);

}  // namespace lockstep
