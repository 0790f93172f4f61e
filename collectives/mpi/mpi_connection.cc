#include "collectives/mpi/mpi_connection.h"

#include <fmt/format.h>

#include "collectives/mpi/mpi_loader.h"
#include "collectives/mpi/mpi_runtime.h"
#include "collectives/mpi/mpi_transport.h"
#include "core/error.h"

namespace lockstep {

namespace {

void check_same_world(MpiRuntime& runtime, const World& world) {
    if (runtime.rank() == world.rank && runtime.size() == world.size) return;
    runtime.give_up();
    throw ConfigError(fmt::format(
        "{} calls this process rank {} of {}, its launcher ({}) rank {} of {}; start it with the mpirun of {}, or set comm.mpi to "
        "the "
        "MPI whose mpirun it was",
        runtime.module().library(), runtime.rank(), runtime.size(), world.launcher, world.rank, world.size, runtime.flavour()));
}

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const World& world, const CommunicatorOptions& options) {
    MpiRuntime& runtime = MpiRuntime::start(choose_mpi(options.mpi), options.connect_timeout_ms);
    check_same_world(runtime, world);
    const MpiAccess access{.module = runtime.module(),
                           .mutex = runtime.mutex(),
                           .rank = world.rank,
                           .size = world.size,
                           .last_tag = runtime.last_tag(),
                           .give_up = [&runtime] { runtime.give_up(); }};
    return std::make_unique<MpiTransport>(
        access, MpiTransportOptions{.timeout_ms = options.timeout_ms, .connect_timeout_ms = options.connect_timeout_ms});
}

}  // namespace lockstep
