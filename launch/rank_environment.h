// The variables by which a rank learns its place: Lockstep's own, and torchrun's, for programs that know those.
#pragma once

#include <string>
#include <vector>

#include "launch/agent_messages.h"
#include "launch/core_binding.h"

namespace lockstep {

struct RankPlace {
    const Decision& round;  // that starts
    const RoundMember& member;
    int local_rank = 0;
    std::string store_host;
    int store_port = 0;
    std::string secret;  // when the launcher made it up; empty: the environment has it, or there is none
    std::string role;
    int max_restarts = 0;
    std::string error_file;            // where the rank says why it failed; empty: nowhere
    const RankCores* cores = nullptr;  // null: not bound
};

// This process's environment with those variables: "NAME=value".
std::vector<std::string> rank_environment(const RankPlace& place);

}  // namespace lockstep
