// Slurm: a step with more than one task. A batch script or a step of one task is not a distributed job.
#include <numeric>

#include <fmt/format.h>

#include "core/error.h"
#include "launch/host_list.h"
#include "launch/variables.h"

namespace lockstep {

namespace {

// Ranks of a node must follow each other: they meet at the node's first.
void require_block_distribution(const World& world, const std::vector<int>& counts) {
    const int first = std::accumulate(counts.begin(), counts.begin() + world.node, 0);
    if (world.rank == first + world.local_rank) return;
    throw ConfigError(
        fmt::format("task {} is number {} on node {}, whose first task is not {}: tasks are dealt out in turn; start srun with "
                    "--distribution=block",
                    world.rank, world.local_rank, world.node, first));
}

int local_size_of(const Variables& variables, const World& world) {
    if (world.node_count == 1) return world.size;
    if (const auto text = variables.first_of({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})) {
        const std::vector<int> counts = expand_counts(*text);
        if (static_cast<size_t>(world.node) < counts.size()) {
            require_block_distribution(world, counts);
            return counts[static_cast<size_t>(world.node)];
        }
        throw ConfigError(fmt::format("SLURM_NODEID={}, but the tasks per node \"{}\" cover {} nodes; start with --ntasks-per-node",
                                      world.node, *text, counts.size()));
    }
    if (const auto count = variables.number("SLURM_NTASKS_PER_NODE")) return *count;
    throw ConfigError(
        fmt::format("Slurm step over {} nodes without SLURM_STEP_TASKS_PER_NODE or SLURM_NTASKS_PER_NODE; start with "
                    "srun --ntasks-per-node=N",
                    world.node_count));
}

void set_address(const Variables& variables, LauncherView& view) {
    World& world = view.world;
    view.has_address = variables.read_master(world);
    if (view.has_address || world.node_count == 1) return;
    const auto hosts = variables.first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
    if (!hosts) return;
    world.store_host = expand_host_list(*hosts).front();
    view.has_address = true;
}

}  // namespace

std::optional<LauncherView> view_slurm(const Variables& variables) {
    if (!variables.has("SLURM_STEP_ID") || !variables.has("SLURM_PROCID")) return std::nullopt;
    const std::string size_variable = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    const int size = variables.number(size_variable).value_or(1);
    if (size < 2) return std::nullopt;
    LauncherView view;
    view.rank_variable = "SLURM_PROCID";
    view.size_variable = size_variable;
    view.address_help = "set MASTER_ADDR";
    World& world = view.world;
    const std::string because =
        fmt::format("{}={} in step {} is", size_variable, size, variables.text("SLURM_STEP_ID").value_or(""));
    world.size = size;
    world.rank = variables.required("SLURM_PROCID", because);
    world.local_rank = variables.required("SLURM_LOCALID", because);
    world.node = variables.required("SLURM_NODEID", because);
    const char* const count_variable = variables.has("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
    world.node_count = variables.required(count_variable, because);
    world.local_size = local_size_of(variables, world);
    world.launcher = "slurm";
    world.job_id = fmt::format("slurm-{}.{}-{}", variables.text("SLURM_JOB_ID").value_or("0"),
                               variables.text("SLURM_STEP_ID").value_or("0"), variables.text("SLURM_RESTART_COUNT").value_or("0"));
    world.store_port = port_of_job(world.job_id);
    set_address(variables, view);
    return view;
}

}  // namespace lockstep
