#include "launch/core_binding.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "launch/hwloc/topology.h"

namespace lockstep {

namespace {

constexpr std::array<std::pair<std::string_view, CoreBinding>, 4> kNames{{{"node", CoreBinding::node},
                                                                          {"socket", CoreBinding::socket},
                                                                          {"core-complex", CoreBinding::core_complex},
                                                                          {"exclusive", CoreBinding::exclusive}}};

std::string_view name_of(CoreBinding binding) {
    const auto found = std::ranges::find(kNames, binding, [](const auto& pair) { return pair.second; });
    return found == kNames.end() ? "none" : found->first;
}

Topology::Place place_of(CoreBinding binding) {
    switch (binding) {
        case CoreBinding::node:
            return Topology::Place::memory_node;
        case CoreBinding::socket:
            return Topology::Place::package;
        case CoreBinding::core_complex:
            return Topology::Place::last_cache;
        default:
            return Topology::Place::core;
    }
}

}  // namespace

std::optional<CoreBinding> core_binding_named(std::string_view name) {
    const auto found = std::ranges::find(kNames, name, [](const auto& pair) { return pair.first; });
    return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

std::vector<RankCores> deal_places(CoreBinding binding, const std::vector<std::vector<int>>& places, int ranks) {
    const int count = static_cast<int>(places.size());
    if (binding == CoreBinding::exclusive && count < ranks) {
        throw ConfigError(
            fmt::format("--numa-binding exclusive: {} ranks cannot have cores of their own on {} core{}; start fewer, or "
                        "choose another binding",
                        ranks, count, count == 1 ? "" : "s"));
    }
    std::vector<RankCores> dealt(static_cast<size_t>(ranks));
    std::vector<int> users(places.size(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
        RankCores& mine = dealt[static_cast<size_t>(rank)];
        const int first = rank * count / ranks;
        const int last = binding == CoreBinding::exclusive ? (rank + 1) * count / ranks : first + 1;
        for (int place = first; place < last; ++place) {
            const std::vector<int>& processors = places[static_cast<size_t>(place)];
            mine.processors.insert(mine.processors.end(), processors.begin(), processors.end());
        }
        mine.rank_here = users[static_cast<size_t>(first)]++;
    }
    for (int rank = 0; rank < ranks; ++rank)
        dealt[static_cast<size_t>(rank)].ranks_here = users[static_cast<size_t>(rank * count / ranks)];
    return dealt;
}

std::vector<RankCores> bind_ranks(CoreBinding binding, int ranks) {
    if (binding == CoreBinding::none) return {};
    const std::vector<std::vector<int>> places = Topology::load()->places(place_of(binding));
    if (places.empty()) {
        throw ConfigError(
            fmt::format("--numa-binding {}: this machine names no such places; choose another binding", name_of(binding)));
    }
    return deal_places(binding, places, ranks);
}

}  // namespace lockstep
