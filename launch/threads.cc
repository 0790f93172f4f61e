#include "launch/threads.h"

#include <omp.h>

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "launch/hwloc/topology.h"
#include "launch/variables.h"

namespace lockstep {

namespace {

constexpr int kMostThreadsPerCore = 16;  // more only switch between each other

std::string cure_for(const World& world) {
    if (world.launcher == "openmpi") return "start with `mpirun --bind-to none`";
    if (world.launcher == "mpich") return "start with `mpirun -bind-to none`";
    if (world.launcher == "mvapich") return "set MV2_ENABLE_AFFINITY=0";
    if (world.launcher == "slurm") return "start with `srun --cpu-bind=none` or give --cpus-per-task";
    return "start without taskset or numactl, or with fewer ranks";
}

// The ranks among which the allowed cores are divided, and this rank's place among them.
struct Sharers {
    int count = 1, place = 0;
};
Sharers sharers_of(const World& world, const ThreadBudget& budget) {
    if (budget.sharers > 0) return {budget.sharers, budget.place};
    return {std::max(world.local_size, 1), world.local_rank};
}

// Launchers of the first kind never bind; the others may have, and then the mask differs from the machine.
bool mask_is_shared(const World& world, const CoreCounts& cores) {
    if (cores.sharers > 0) return cores.sharers > 1;
    const bool never_binds = world.launcher == "lockstep" || world.launcher == "torchrun" || world.launcher == "environment" ||
                             world.launcher == "single" || world.launcher == "flux";
    return never_binds || cores.allowed == cores.node;
}

std::string warning_for(const World& world, const ThreadBudget& budget) {
    const int fair_share = std::max(1, budget.node_cores / world.local_size);
    const int sharers = sharers_of(world, budget).count;
    const int mine = budget.shares_cores_with_peers ? std::max(1, budget.allowed_cores / sharers) : budget.allowed_cores;
    if (budget.shares_cores_with_peers && budget.allowed_cores < sharers) {
        return fmt::format("{} ranks share {} allowed core{} of {}: they slow each other down; {}", sharers, budget.allowed_cores,
                           budget.allowed_cores == 1 ? "" : "s", budget.node_cores,
                           budget.allowed_cores < budget.node_cores ? cure_for(world) : "start fewer ranks");
    }
    if (budget.compute_threads > mine) {
        return fmt::format("{} compute threads on {} core{} of this rank; lower train.threads{}", budget.compute_threads, mine,
                           mine == 1 ? "" : "s", mine < fair_share ? " or " + cure_for(world) : "");
    }
    if (mine < fair_share) {
        return fmt::format("the launcher bound this rank to {} of {} cores, {} for each rank are there; {}", mine,
                           budget.node_cores, fair_share, cure_for(world));
    }
    return {};
}

}  // namespace

ThreadBudget plan_threads(const World& world, int requested_threads, const CoreCounts& cores) {
    if (requested_threads > kMostThreadsPerCore * cores.allowed) {
        throw ConfigError(fmt::format("train.threads {} on {} allowed core{} would not get through a step; at most {}, best auto",
                                      requested_threads, cores.allowed, cores.allowed == 1 ? "" : "s",
                                      kMostThreadsPerCore * cores.allowed));
    }
    ThreadBudget budget{.allowed_cores = cores.allowed,
                        .node_cores = cores.node,
                        .shares_cores_with_peers = mask_is_shared(world, cores),
                        .sharers = cores.sharers,
                        .place = cores.place};
    const int share = budget.shares_cores_with_peers ? cores.allowed / sharers_of(world, budget).count : cores.allowed;
    budget.compute_threads = requested_threads > 0 ? requested_threads : std::max(share, 1);
    budget.warning = warning_for(world, budget);
    return budget;
}

ThreadBudget plan_threads(const World& world, int requested_threads) {
    const auto topology = Topology::load();
    const EnvironmentLookup environment = process_environment();
    const Variables variables(environment);
    return plan_threads(world, requested_threads,
                        {.allowed = topology->allowed_cores(),
                         .node = topology->node_cores(),
                         .sharers = variables.number("LOCKSTEP_MASK_RANKS").value_or(0),
                         .place = variables.number("LOCKSTEP_MASK_RANK").value_or(0)});
}

CoreRange cores_of_rank(const World& world, const ThreadBudget& budget) {
    const auto [count, place] = sharers_of(world, budget);
    if (!budget.shares_cores_with_peers || count < 2 || budget.allowed_cores < count) return {};
    const int first = place * budget.allowed_cores / count;
    const int last = (place + 1) * budget.allowed_cores / count;
    if (budget.compute_threads > last - first) return {};
    return {first, last - first};
}

void apply_threads(const World& world, const ThreadBudget& budget) {
    const CoreRange range = cores_of_rank(world, budget);
    if (range.count > 0) Topology::load()->bind_process(range.first, range.count);
    omp_set_dynamic(0);
    omp_set_num_threads(budget.compute_threads);
}

}  // namespace lockstep
