#include "collectives/mpi/mpi_loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace lockstep {

namespace {

std::optional<std::string> process_variable(const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

const MpiModule& open_module(const std::string& file) {
    // Global: MPI's own plugins look for its symbols among those of the process.
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr)
        throw ConfigError(fmt::format("cannot load {}: {}; install the MPI it was built with", file, dlerror()));
    const auto entry = reinterpret_cast<MpiModuleEntry>(dlsym(library, kMpiModuleEntry));
    const MpiModule* const module = entry == nullptr ? nullptr : entry();
    if (module == nullptr || module->version != kMpiModuleVersion) {
        throw ConfigError(fmt::format("{} is not of this program's version; build both again together", file));
    }
    return *module;
}

}  // namespace

std::string choose_mpi(const std::string& wanted, const TextLookup& environment) {
    if (wanted == "openmpi" || wanted == "mpich") return wanted;
    if (wanted != "auto") throw ConfigError(fmt::format("comm.mpi `{}` is unknown; choose auto, openmpi or mpich", wanted));
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}) {
        if (environment(name)) return "openmpi";
    }
    for (const char* name : {"PMI_RANK", "PMI_FD"}) {
        if (environment(name)) return "mpich";
    }
    throw ConfigError(
        "comm.backend=mpi: no MPI has started this process (no OMPI_COMM_WORLD_SIZE, PMIX_RANK or PMI_RANK in its environment); "
        "start it with mpirun, or choose another comm.backend");
}

std::string choose_mpi(const std::string& wanted) { return choose_mpi(wanted, process_variable); }

std::vector<std::string> module_folders() {
    std::vector<std::string> folders;
    if (const auto folder = process_variable("LOCKSTEP_MODULES")) folders.push_back(*folder);
    std::error_code unknown;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", unknown);
    if (unknown) return folders;
    for (const char* place : {".", "lib", "../lib"}) folders.push_back((program.parent_path() / place).lexically_normal().string());
    return folders;
}

const MpiModule& load_mpi_module(const std::string& flavour) {
    const std::string name = fmt::format("liblockstep_mpi_{}.so", flavour);
    const std::vector<std::string> folders = module_folders();
    for (const std::string& folder : folders) {
        const auto file = std::filesystem::path(folder) / name;
        if (std::filesystem::exists(file)) return open_module(file.string());
    }
    throw ConfigError(fmt::format("comm.backend=mpi with {} is not built: no {} in {}; install {} and build again", flavour, name,
                                  fmt::join(folders, ", "), flavour == "openmpi" ? "libopenmpi-dev" : "libmpich-dev"));
}

}  // namespace lockstep
