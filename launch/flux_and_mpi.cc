// Open MPI, MPICH (Intel MPI, MVAPICH) and Flux. None of them says where rank 0 is: on one node the ranks meet at a port derived
// from the job's name, over several nodes MASTER_ADDR is needed.
#include <fmt/format.h>

#include "core/error.h"
#include "launch/variables.h"

namespace lockstep {

namespace {

void set_job(const Variables& variables, LauncherView& view, const std::vector<std::string>& names) {
    World& world = view.world;
    const std::string parent = variables.text("lockstep:parent_pid").value_or("0");
    world.job_id = fmt::format("{}-{}", world.launcher, variables.first_of(names).value_or("parent" + parent));
    world.store_port = port_of_job(world.job_id);
    view.has_address = variables.read_master(world);
}

// Of launchers that say only the local size: which node this is can be told when ranks are numbered node by node, equally many on
// each.
void set_nodes(World& world) {
    if (world.local_size < 1) return;  // reported by the caller's checks
    world.node_count = (world.size + world.local_size - 1) / world.local_size;
    if (world.node_count == 1) return;
    if (world.size % world.local_size != 0 || world.rank % world.local_size != world.local_rank) {
        throw ConfigError(
            fmt::format("rank {} of {} is number {} of {} ranks on its node: the ranks are not numbered node by node with equally "
                        "many on each; give mpirun --map-by core and the same slots for each host (-ppn), or start uneven nodes "
                        "with `lockstep run` on each",
                        world.rank, world.size, world.local_rank, world.local_size));
    }
    world.node = world.rank / world.local_size;
}

}  // namespace

std::optional<LauncherView> view_open_mpi(const Variables& variables) {
    if (!variables.has("OMPI_COMM_WORLD_RANK") && !variables.has("OMPI_COMM_WORLD_SIZE")) return std::nullopt;
    LauncherView view{.rank_variable = "OMPI_COMM_WORLD_RANK",
                      .size_variable = "OMPI_COMM_WORLD_SIZE",
                      .address_help = "give mpirun `-x MASTER_ADDR=<host of rank 0>`"};
    const std::string because = "other variables of Open MPI are";
    view.world.rank = variables.required("OMPI_COMM_WORLD_RANK", because);
    view.world.size = variables.required("OMPI_COMM_WORLD_SIZE", because);
    view.world.local_rank = variables.required("OMPI_COMM_WORLD_LOCAL_RANK", because);
    view.world.local_size = variables.required("OMPI_COMM_WORLD_LOCAL_SIZE", because);
    view.world.launcher = "openmpi";
    set_nodes(view.world);
    set_job(variables, view, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"});
    return view;
}

std::optional<LauncherView> view_mpich(const Variables& variables) {
    const bool mvapich = variables.has("MV2_COMM_WORLD_RANK");
    if (!mvapich && !variables.has("PMI_RANK")) return std::nullopt;
    const std::string rank = mvapich ? "MV2_COMM_WORLD_RANK" : "PMI_RANK", size = mvapich ? "MV2_COMM_WORLD_SIZE" : "PMI_SIZE";
    const std::string local_rank = mvapich ? "MV2_COMM_WORLD_LOCAL_RANK" : "MPI_LOCALRANKID";
    const std::string local_size = mvapich ? "MV2_COMM_WORLD_LOCAL_SIZE" : "MPI_LOCALNRANKS";
    // Slurm's and Flux's own PMI set rank and size only; those launchers are read from their own variables.
    if (!variables.has(local_rank) && (variables.has("SLURM_STEP_ID") || variables.has("FLUX_JOB_ID"))) return std::nullopt;
    LauncherView view{
        .rank_variable = rank, .size_variable = size, .address_help = "give mpirun `-genv MASTER_ADDR <host of rank 0>`"};
    const std::string because = fmt::format("{} is", rank);
    view.world.rank = variables.required(rank, because);
    view.world.size = variables.required(size, because);
    view.world.local_rank = variables.required(local_rank, because);
    view.world.local_size = variables.required(local_size, because);
    view.world.launcher = mvapich ? "mvapich" : "mpich";
    set_nodes(view.world);
    set_job(variables, view, {"PMI_JOBID", "MPIR_JOBID"});
    return view;
}

std::optional<LauncherView> view_flux(const Variables& variables) {
    if (!variables.has("FLUX_TASK_RANK")) return std::nullopt;
    LauncherView view{.rank_variable = "FLUX_TASK_RANK",
                      .size_variable = "FLUX_JOB_SIZE",
                      .address_help = "give `flux run --env=MASTER_ADDR=<host of rank 0>`"};
    const std::string because = "FLUX_TASK_RANK is";
    World& world = view.world;
    world.rank = variables.required("FLUX_TASK_RANK", because);
    world.size = variables.required("FLUX_JOB_SIZE", because);
    world.local_rank = variables.required("FLUX_TASK_LOCAL_ID", because);
    world.node_count = variables.number("FLUX_JOB_NNODES").value_or(1);
    if (world.node_count < 1 || world.size % world.node_count != 0) {
        throw ConfigError(
            fmt::format("FLUX_JOB_SIZE={} tasks on FLUX_JOB_NNODES={}: not the same number on each node; start with "
                        "--tasks-per-node, or with `lockstep run` on each node",
                        world.size, world.node_count));
    }
    world.local_size = world.size / world.node_count;
    world.node = world.rank / std::max(world.local_size, 1);
    world.launcher = "flux";
    set_job(variables, view, {"FLUX_JOB_ID"});
    return view;
}

}  // namespace lockstep
