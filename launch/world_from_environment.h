// Finds out who this process is: our launcher, torchrun, Open MPI, MPICH, MVAPICH, Flux, Slurm, or alone.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/world.h"

namespace lockstep {

using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
EnvironmentLookup process_environment();

// Throws ConfigError naming variable and value (not a number, rank >= size, two launchers that disagree).
World world_from_environment(const EnvironmentLookup& environment);

// Every variable found, the verdict and the reason: for `lockstep doctor`.
std::string explain_environment(const EnvironmentLookup& environment);

}  // namespace lockstep
