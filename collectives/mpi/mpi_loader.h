// Finds the MPI that started this process and loads its module (mpi_module.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/mpi/mpi_module.h"

namespace lockstep {

using TextLookup = std::function<std::optional<std::string>(const std::string& name)>;

// openmpi or mpich. `wanted`, which is comm.mpi: auto, openmpi or mpich; auto goes by the launcher's variables:
// OMPI_COMM_WORLD_SIZE or PMIX_RANK are Open MPI's, PMI_RANK or PMI_FD are those of MPICH and its kin. ConfigError when auto finds
// none.
std::string choose_mpi(const std::string& wanted, const TextLookup& environment);
std::string choose_mpi(const std::string& wanted);  // by this process's environment

// Beside the program, in lib/ there, in ../lib; LOCKSTEP_MODULES, a folder, comes first where set.
std::vector<std::string> module_folders();

// Loads the module, for ever. ConfigError naming the file, where it was looked for, and the package that brings it.
const MpiModule& load_mpi_module(const std::string& flavour);

}  // namespace lockstep
