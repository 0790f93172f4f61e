// Finds out who this process is: our launcher, torchrun, Open MPI, MPICH, MVAPICH, Flux, Slurm, or alone; the first whose variables
// are set wins. Inner launchers come first, because mpirun and torchrun run inside the allocations of the others.
//
// Where the ranks meet (World::store_host, store_port, job_id; launch/rendezvous goes there):
// - `lockstep run`: the launcher's own store, named in LOCKSTEP_STORE_HOST and LOCKSTEP_STORE_PORT.
// - torchrun: MASTER_ADDR and MASTER_PORT + 1, since torchrun's agent occupies MASTER_PORT itself; without an agent (a script that
//   sets RANK and WORLD_SIZE, Kubernetes' PyTorchJob) MASTER_PORT itself.
// - mpirun and Flux on one node: 127.0.0.1 and a port derived from the job's name (PMIX_NAMESPACE, OMPI_MCA_ess_base_jobid,
//   FLUX_JOB_ID, else the parent process). Over several nodes MASTER_ADDR is needed: refused without it, never localhost.
// - srun: the first host of SLURM_STEP_NODELIST and a port derived from job and step.
// MASTER_ADDR and MASTER_PORT, where set, win over derived values.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/world.h"

namespace lockstep {

using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
// The process's variables. The extra name "lockstep:parent_pid" gives the parent's process id.
EnvironmentLookup process_environment();

// Throws ConfigError naming variable and value (not a number, rank >= size, two launchers that disagree).
World world_from_environment(const EnvironmentLookup& environment);

// Whether this is a later start of one job: after a failure, a change of nodes or a requeue, as far as the launcher says.
bool is_later_start(const EnvironmentLookup& environment);

// Every variable found, the verdict and the reason: for `lockstep doctor`.
std::string explain_environment(const EnvironmentLookup& environment);

}  // namespace lockstep
