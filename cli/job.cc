#include "cli/job.h"

#include <chrono>
#include <csignal>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "launch/rendezvous.h"
#include "launch/world_from_environment.h"
#include "trainer/common_failure.h"

namespace lockstep::cli {

int run_job(const Experiment& experiment, const std::function<int(const World&, Store&)>& work) {
    std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is a write that fails, told like a full disk, not the process's end
    std::signal(SIGPIPE, SIG_IGN);  // who reads the output may leave; training goes on
    const World world = world_from_environment(process_environment());
    log::init({.rank = world.rank, .world_size = world.size});
    const Rendezvous rendezvous = meet(world, experiment.comm.start_timeout_ms);
    try {
        return work(world, *rendezvous.store);
    } catch (const CommonFailure& failure) {
        if (world.is_leader()) throw;
        // The launcher names the rank that ended first: let that be the one with the message.
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return static_cast<int>(failure.exit_code());
    }
}

}  // namespace lockstep::cli
