#include "launch/rank_environment.h"

#include <utility>

#include <fmt/format.h>

#include "launch/child_process.h"
#include "launch/error_file.h"

namespace lockstep {

std::vector<std::string> rank_environment(const RankPlace& place) {
    const auto text = [](int value) { return fmt::format("{}", value); };
    const int rank = place.member.first_rank + place.local_rank;
    const int nodes = static_cast<int>(place.round.members.size());
    const std::string role = place.role.empty() ? "default" : place.role;
    std::vector<std::pair<std::string, std::string>> variables{{"LOCKSTEP_RANK", text(rank)},
                                                               {"LOCKSTEP_WORLD_SIZE", text(place.round.world_size)},
                                                               {"LOCKSTEP_LOCAL_RANK", text(place.local_rank)},
                                                               {"LOCKSTEP_LOCAL_WORLD_SIZE", text(place.member.local_size)},
                                                               {"LOCKSTEP_NODE_RANK", text(place.member.node)},
                                                               {"LOCKSTEP_NODE_COUNT", text(nodes)},
                                                               {"LOCKSTEP_STORE_HOST", place.store_host},
                                                               {"LOCKSTEP_STORE_PORT", text(place.store_port)},
                                                               {"LOCKSTEP_JOB_ID", place.round.job_id},
                                                               {"LOCKSTEP_ROUND", text(place.round.round)},
                                                               {"LOCKSTEP_RESTART_COUNT", text(place.round.restart_count)},
                                                               {"LOCKSTEP_MAX_RESTARTS", text(place.max_restarts)},
                                                               {"RANK", text(rank)},
                                                               {"WORLD_SIZE", text(place.round.world_size)},
                                                               {"LOCAL_RANK", text(place.local_rank)},
                                                               {"LOCAL_WORLD_SIZE", text(place.member.local_size)},
                                                               {"GROUP_RANK", text(place.member.node)},
                                                               {"GROUP_WORLD_SIZE", text(nodes)},
                                                               {"ROLE_NAME", role},
                                                               {"ROLE_RANK", text(rank)},
                                                               {"ROLE_WORLD_SIZE", text(place.round.world_size)},
                                                               {"MASTER_ADDR", place.round.master_addr},
                                                               {"MASTER_PORT", text(place.round.master_port)},
                                                               {"TORCHELASTIC_RESTART_COUNT", text(place.round.restart_count)},
                                                               {"TORCHELASTIC_MAX_RESTARTS", text(place.max_restarts)},
                                                               {"TORCHELASTIC_RUN_ID", place.round.run_name},
                                                               {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                                                               {kErrorFileVariable, place.error_file}};
    if (!place.secret.empty()) variables.emplace_back("LOCKSTEP_JOB_SECRET", place.secret);
    if (place.cores != nullptr) {
        variables.emplace_back("LOCKSTEP_MASK_RANK", text(place.cores->rank_here));
        variables.emplace_back("LOCKSTEP_MASK_RANKS", text(place.cores->ranks_here));
    }
    return environment_with(variables);
}

}  // namespace lockstep
