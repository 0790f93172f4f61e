#include "launch/rank_plans.h"

#include <unistd.h>

#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/files.h"
#include "launch/agent.h"
#include "launch/rank_environment.h"

namespace lockstep {

RankPlans::RankPlans(const AgentOptions& options, std::string secret)
    : options_(options),
      secret_(std::move(secret)),
      cores_(bind_ranks(options.binding, options.nproc_per_node)),
      output_(STDOUT_FILENO),
      error_(STDERR_FILENO) {}

RankPlan RankPlans::plan(const Decision& round, const RoundMember& mine, int local_rank, int store_port) {
    const int rank = mine.first_rank + local_rank;
    const auto index = static_cast<size_t>(local_rank);
    const RankCores* const cores = index < cores_.size() ? &cores_[index] : nullptr;
    const ShownStreams shown = index < options_.shown.size() ? options_.shown[index] : ShownStreams{};
    const std::string prefix = fmt::format("[{}{}]: ", options_.role, rank);
    RankPlan plan{.rank = rank,
                  .processors = cores != nullptr ? cores->processors : std::vector<int>(),
                  .output = {.prefix = prefix, .screen = shown.output ? &output_ : nullptr},
                  .error = {.prefix = prefix, .screen = shown.error ? &error_ : nullptr}};
    if (!options_.log_dir.empty()) {
        const fs::path folder =
            fs::path(options_.log_dir) / round.run_name / fmt::format("{}", round.round) / fmt::format("{}", rank);
        make_directories(folder);
        plan.log_folder = folder.string();
        plan.output.log = folder / "stdout.log";
        plan.error.log = folder / "stderr.log";
        plan.error_file = fs::absolute(folder / "error.json");
    } else if (!errors_.path().empty()) {
        plan.error_file = errors_.path() / fmt::format("round-{}-rank-{}.json", round.round, rank);
    }
    std::error_code ignored;
    if (!plan.error_file.empty()) fs::remove(plan.error_file, ignored);
    plan.environment = rank_environment({.round = round,
                                         .member = mine,
                                         .local_rank = local_rank,
                                         .store_host = options_.this_machine_only() ? "127.0.0.1" : options_.endpoint_host,
                                         .store_port = store_port,
                                         .secret = secret_,
                                         .role = options_.role,
                                         .max_restarts = options_.max_restarts,
                                         .error_file = plan.error_file.string(),
                                         .cores = cores});
    return plan;
}

}  // namespace lockstep
