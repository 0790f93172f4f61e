// `lockstep run` and torchrun (with everything else that sets its variables: Composer, Kubernetes' PyTorchJob, hand-made scripts).
#include <fmt/format.h>

#include "core/error.h"
#include "launch/variables.h"
#include "net/local_address.h"

namespace lockstep {

namespace {

std::string is_set(const Variables& variables, const std::string& name) {
    return fmt::format("{}={} is set", name, variables.text(name).value_or(""));
}

}  // namespace

std::optional<LauncherView> view_lockstep(const Variables& variables) {
    if (!variables.has("LOCKSTEP_RANK") && !variables.has("LOCKSTEP_WORLD_SIZE")) return std::nullopt;
    LauncherView view{.rank_variable = "LOCKSTEP_RANK", .size_variable = "LOCKSTEP_WORLD_SIZE", .has_address = true};
    World& world = view.world;
    world.rank = variables.required("LOCKSTEP_RANK", is_set(variables, "LOCKSTEP_WORLD_SIZE"));
    const std::string because = is_set(variables, "LOCKSTEP_RANK");
    world.size = variables.required("LOCKSTEP_WORLD_SIZE", because);
    world.local_rank = variables.required("LOCKSTEP_LOCAL_RANK", because);
    world.local_size = variables.required("LOCKSTEP_LOCAL_WORLD_SIZE", because);
    world.node = variables.required("LOCKSTEP_NODE_RANK", because);
    world.node_count = variables.required("LOCKSTEP_NODE_COUNT", because);
    world.store_port = variables.required("LOCKSTEP_STORE_PORT", because);
    world.store_host = variables.text("LOCKSTEP_STORE_HOST").value_or("127.0.0.1");
    world.job_id = variables.text("LOCKSTEP_JOB_ID").value_or("");
    world.launcher = "lockstep";
    return view;
}

// torchrun's agent keeps MASTER_PORT for its own store, so ours begins at the next port. Without an agent MASTER_PORT is free.
std::optional<LauncherView> view_torchrun(const Variables& variables) {
    if (!variables.has("RANK") && !variables.has("WORLD_SIZE")) return std::nullopt;
    LauncherView view{.rank_variable = "RANK", .size_variable = "WORLD_SIZE", .address_help = "set MASTER_ADDR and MASTER_PORT"};
    World& world = view.world;
    world.rank = variables.required("RANK", is_set(variables, "WORLD_SIZE"));
    world.size = variables.required("WORLD_SIZE", is_set(variables, "RANK"));
    const bool has_local = variables.has("LOCAL_RANK");
    world.local_rank = variables.number("LOCAL_RANK").value_or(0);
    const auto local_size = variables.number("LOCAL_WORLD_SIZE");
    if (has_local && !local_size && world.local_rank > 0) {
        throw ConfigError(fmt::format("LOCAL_WORLD_SIZE is not set, but LOCAL_RANK={} is; set both", world.local_rank));
    }
    world.local_size = local_size.value_or(1);
    view.has_address = variables.read_master(world);
    if (!has_local && !local_size && is_loopback_name(variables.text("MASTER_ADDR").value_or(""))) {
        world.local_rank = world.rank;  // all meet on this node, so all are on it
        world.local_size = world.size;
    }
    world.node_count = variables.number("GROUP_WORLD_SIZE").value_or(world.size / std::max(world.local_size, 1));
    world.node = variables.number("GROUP_RANK").value_or(world.rank / std::max(world.local_size, 1));
    const bool has_agent = variables.has("TORCHELASTIC_RUN_ID");
    world.launcher = has_agent ? "torchrun" : "environment";
    const std::string meeting_point = fmt::format("{}:{}", world.store_host, world.store_port);
    world.job_id = fmt::format("{}-{}-{}-{}", world.launcher, variables.text("TORCHELASTIC_RUN_ID").value_or("none"), meeting_point,
                               variables.text("TORCHELASTIC_RESTART_COUNT").value_or("0"));
    if (world.size > 1 && world.store_port == 0) {
        throw ConfigError(fmt::format("RANK={} of WORLD_SIZE={}, but MASTER_PORT is not set; set MASTER_ADDR and MASTER_PORT",
                                      world.rank, world.size));
    }
    if (has_agent) ++world.store_port;
    return view;
}

}  // namespace lockstep
