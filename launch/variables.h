// Reads launcher variables from an environment; every error names variable and value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/world.h"
#include "launch/world_from_environment.h"

namespace lockstep {

class Variables {
public:
    explicit Variables(const EnvironmentLookup& lookup) : lookup_(lookup) {}

    bool has(const std::string& name) const { return text(name).has_value(); }
    std::optional<std::string> text(const std::string& name) const;  // nullopt also for an empty value
    std::optional<std::string> first_of(const std::vector<std::string>& names) const;
    std::optional<int> number(const std::string& name) const;                 // ConfigError unless a whole number >= 0
    int required(const std::string& name, const std::string& because) const;  // ConfigError when absent

    // Sets host and port from MASTER_ADDR and MASTER_PORT where the user gave them. True when an address was given.
    bool read_master(World& world) const;

private:
    const EnvironmentLookup& lookup_;
};

// A port in 20000..29999 that all ranks of a job compute alike. Below the kernel's range of outgoing ports.
int port_of_job(const std::string& job_id);

// One launcher's view: rank and size are checked, the address may be missing.
struct LauncherView {
    World world;
    std::string rank_variable, size_variable;  // for messages
    bool has_address = false;                  // store_host is known, not assumed
    std::string address_help;                  // how to give it under this launcher
};

// Each answers nullopt when the launcher's variables are absent, and throws ConfigError when they are incomplete.
std::optional<LauncherView> view_lockstep(const Variables& variables);
std::optional<LauncherView> view_torchrun(const Variables& variables);
std::optional<LauncherView> view_open_mpi(const Variables& variables);
std::optional<LauncherView> view_mpich(const Variables& variables);
std::optional<LauncherView> view_flux(const Variables& variables);
std::optional<LauncherView> view_slurm(const Variables& variables);

}  // namespace lockstep
