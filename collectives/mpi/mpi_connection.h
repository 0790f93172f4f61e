// The backend `mpi`: MPI moves the bytes; who sends what, the sums, deadlines and errors are ours (schedule_engine.h), so the bits
// equal those of the other backends.
#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "collectives/transport.h"

namespace lockstep {

// Collective over all ranks, which have met already. ConfigError when no MPI has started this process, its module is not built, or
// its rank and size are not this world's; CommError when the ranks cannot connect.
std::unique_ptr<Transport> make_mpi_transport(const World& world, const CommunicatorOptions& options);

}  // namespace lockstep
