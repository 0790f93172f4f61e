// Which processors each rank of a node may run on, when the launcher is to decide it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class CoreBinding {
    none,
    node,          // all of a memory (NUMA) node's cores
    socket,        // all of a package's
    core_complex,  // all that share a last-level cache
    exclusive      // contiguous cores of its own
};
std::optional<CoreBinding> core_binding_named(std::string_view name);

struct RankCores {
    std::vector<int> processors;  // as the system numbers them
    int rank_here = 0;            // of the local ranks that have the same processors, this is number ...
    int ranks_here = 1;           // ... of so many
};

// `places`: each with its processors, neighbours beside each other: nodes, packages, caches or cores. Deals them to the ranks in
// order; with fewer places than ranks several ranks share one, but for `exclusive`, where that is a ConfigError. Pure.
std::vector<RankCores> deal_places(CoreBinding binding, const std::vector<std::vector<int>>& places, int ranks);

// The same with this machine's places inside this process's mask. ConfigError naming the option when the machine has no such
// places. Empty for `none`.
std::vector<RankCores> bind_ranks(CoreBinding binding, int ranks);

}  // namespace lockstep
