#include "launch/world_from_environment.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include <fmt/format.h>

#include "core/error.h"
#include "launch/variables.h"

namespace lockstep {

namespace {

// Inner launchers come first: mpirun runs inside a Slurm allocation, torchrun inside anything.
using View = std::optional<LauncherView> (*)(const Variables&);
constexpr std::array<View, 6> kInDetectionOrder{view_lockstep, view_torchrun, view_open_mpi, view_mpich, view_flux, view_slurm};

constexpr std::array kShownVariables{"LOCKSTEP_RANK",
                                     "LOCKSTEP_WORLD_SIZE",
                                     "LOCKSTEP_LOCAL_RANK",
                                     "LOCKSTEP_LOCAL_WORLD_SIZE",
                                     "LOCKSTEP_NODE_RANK",
                                     "LOCKSTEP_NODE_COUNT",
                                     "LOCKSTEP_STORE_HOST",
                                     "LOCKSTEP_STORE_PORT",
                                     "LOCKSTEP_JOB_ID",
                                     "LOCKSTEP_ROUND",
                                     "LOCKSTEP_RESTART_COUNT",
                                     "LOCKSTEP_MASK_RANK",
                                     "LOCKSTEP_MASK_RANKS",
                                     "RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "LOCAL_WORLD_SIZE",
                                     "GROUP_RANK",
                                     "GROUP_WORLD_SIZE",
                                     "MASTER_ADDR",
                                     "MASTER_PORT",
                                     "TORCHELASTIC_RUN_ID",
                                     "TORCHELASTIC_RESTART_COUNT",
                                     "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     "OMPI_MCA_ess_base_jobid",
                                     "PMI_RANK",
                                     "PMI_SIZE",
                                     "MPI_LOCALRANKID",
                                     "MPI_LOCALNRANKS",
                                     "MV2_COMM_WORLD_RANK",
                                     "MV2_COMM_WORLD_SIZE",
                                     "MV2_COMM_WORLD_LOCAL_RANK",
                                     "MV2_COMM_WORLD_LOCAL_SIZE",
                                     "PMIX_RANK",
                                     "PMIX_NAMESPACE",
                                     "FLUX_TASK_RANK",
                                     "FLUX_JOB_SIZE",
                                     "FLUX_TASK_LOCAL_ID",
                                     "FLUX_JOB_NNODES",
                                     "FLUX_JOB_ID",
                                     "SLURM_JOB_ID",
                                     "SLURM_RESTART_COUNT",
                                     "SLURM_STEP_ID",
                                     "SLURM_PROCID",
                                     "SLURM_NTASKS",
                                     "SLURM_STEP_NUM_TASKS",
                                     "SLURM_LOCALID",
                                     "SLURM_NODEID",
                                     "SLURM_NNODES",
                                     "SLURM_STEP_NUM_NODES",
                                     "SLURM_STEP_TASKS_PER_NODE",
                                     "SLURM_NTASKS_PER_NODE",
                                     "SLURM_STEP_NODELIST",
                                     "SLURM_JOB_NODELIST",
                                     "OMP_NUM_THREADS"};

void check_view(const LauncherView& view) {
    const World& world = view.world;
    const auto fail = [&](const std::string& text) {
        throw ConfigError(fmt::format("{}={} and {}={} ({}): {}", view.rank_variable, world.rank, view.size_variable, world.size,
                                      world.launcher, text));
    };
    if (world.size < 1) fail("the world size is at least 1");
    if (world.rank >= world.size) fail(fmt::format("rank {} is too high; ranks are 0 to {}", world.rank, world.size - 1));
    if (world.local_size < 1 || world.local_size > world.size) {
        fail(fmt::format("local size {} does not lie in 1 to {}", world.local_size, world.size));
    }
    if (world.local_rank >= world.local_size)
        fail(fmt::format("local rank {} of local size {} is too high", world.local_rank, world.local_size));
    if (world.node_count < 1 || world.node >= world.node_count)
        fail(fmt::format("node {} of {} nodes", world.node, world.node_count));
    if (world.node_count > 1 && !view.has_address) {
        fail(fmt::format("{} nodes, but no address where the ranks can meet; {}", world.node_count, view.address_help));
    }
}

// Of launchers at one level: torchrun-like variables without an agent that just set them, Open MPI, MPICH. Resource managers
// below them (Slurm, Flux) often count nodes or allocations, so they may differ.
void check_agreement(const LauncherView& chosen, const LauncherView& other) {
    if (chosen.world.rank == other.world.rank && chosen.world.size == other.world.size) return;
    throw ConfigError(
        fmt::format("two launchers disagree: {}={}, {}={} ({}) and {}={}, {}={} ({}); unset the variables of the one that did not "
                    "start this process",
                    chosen.rank_variable, chosen.world.rank, chosen.size_variable, chosen.world.size, chosen.world.launcher,
                    other.rank_variable, other.world.rank, other.size_variable, other.world.size, other.world.launcher));
}

void check_other_launchers(const LauncherView& chosen, const Variables& variables) {
    const std::string& launcher = chosen.world.launcher;
    if (launcher == "environment") {
        if (const auto other = view_open_mpi(variables)) check_agreement(chosen, *other);
    }
    if (launcher == "environment" || launcher == "openmpi") {
        if (const auto other = view_mpich(variables)) check_agreement(chosen, *other);
    }
}

// PMIx names the rank but not the size: N processes that each think they are alone would be worse than an error.
void refuse_bare_pmix(const Variables& variables) {
    if (!variables.has("PMIX_RANK") || variables.has("SLURM_STEP_ID")) return;
    throw ConfigError(
        fmt::format("PMIX_RANK={} is set, but no variable says how many ranks there are; start with `lockstep run`, mpirun or "
                    "srun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                    variables.text("PMIX_RANK").value_or("")));
}

World single_world(const Variables& variables) {
    World world;
    world.launcher = "single";
    world.job_id = fmt::format("single-{}", variables.text("lockstep:parent_pid").value_or("0"));
    return world;
}

}  // namespace

EnvironmentLookup process_environment() {
    return [](const std::string& name) -> std::optional<std::string> {
        if (name == "lockstep:parent_pid") return fmt::format("{}", getppid());
        const char* value = std::getenv(name.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    };
}

bool is_later_start(const EnvironmentLookup& environment) {
    const Variables variables(environment);
    for (const char* name : {"LOCKSTEP_ROUND", "LOCKSTEP_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
        if (variables.number(name).value_or(0) > 0) return true;
    }
    return false;
}

World world_from_environment(const EnvironmentLookup& environment) {
    const Variables variables(environment);
    for (const View view_launcher : kInDetectionOrder) {
        const auto view = view_launcher(variables);
        if (!view) continue;
        check_view(*view);
        check_other_launchers(*view, variables);
        return view->world;
    }
    refuse_bare_pmix(variables);
    return single_world(variables);
}

std::string explain_environment(const EnvironmentLookup& environment) {
    std::string text;
    for (const char* name : kShownVariables) {
        if (const auto value = environment(name)) text += fmt::format("  {}={}\n", name, *value);
    }
    if (text.empty()) text = "  no launcher variables\n";
    text = "variables found:\n" + text;
    try {
        const World world = world_from_environment(environment);
        text += fmt::format("verdict: {}: rank {} of {}, local rank {} of {}, node {} of {}\n", world.launcher, world.rank,
                            world.size, world.local_rank, world.local_size, world.node, world.node_count);
        if (world.size > 1) text += fmt::format("meeting point: {}:{}, job {}\n", world.store_host, world.store_port, world.job_id);
        text +=
            "reason: first of lockstep run, torchrun, Open MPI, MPICH/MVAPICH, Flux, a Slurm step with more than one task whose "
            "variables "
            "are set; else a single process\n";
    } catch (const ConfigError& error) {
        text += fmt::format("verdict: refused: {}\n", error.what());
    }
    return text;
}

}  // namespace lockstep
