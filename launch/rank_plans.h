// What each rank of this node is started with: the variables that tell its place, the cores it may use, where its output and its
// error file go.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/temporary_folder.h"
#include "launch/agent_messages.h"
#include "launch/core_binding.h"
#include "launch/rank_group.h"

namespace lockstep {

struct AgentOptions;

class RankPlans {
public:
    // `options` outlives it. `secret`: the job's, when the launcher made it up; else empty. Throws ConfigError when the ranks
    // cannot be bound to cores as asked.
    RankPlans(const AgentOptions& options, std::string secret);

    // Makes the rank's log folder where logs are kept, and removes what an earlier rank of that place left in its error file.
    // Throws DeviceError.
    RankPlan plan(const Decision& round, const RoundMember& mine, int local_rank, int store_port);

    Screen& output_screen() { return output_; }
    Screen& error_screen() { return error_; }

private:
    const AgentOptions& options_;
    const std::string secret_;
    const std::vector<RankCores> cores_;  // by local rank; empty: not bound
    const TemporaryFolder errors_{"lockstep-run"};
    Screen output_, error_;
};

}  // namespace lockstep
