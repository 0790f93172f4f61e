// `lockstep chaos`: makes faults in jobs of the user's own configuration and compares what comes of them with what should.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "cli/chaos_job.h"
#include "cli/chaos_plan.h"
#include "cli/commands.h"
#include "configs/experiment.h"
#include "core/error.h"

namespace lockstep::cli {

namespace {

struct Arguments {
    std::string plan;
    std::string out = "chaos";
    std::vector<std::string> command;
};

std::string verdict_text(const DrillResult& result) {
    if (!result.skipped.empty()) return "skipped: " + result.skipped;
    if (result.complaints.empty()) return "as expected";
    return fmt::format("NOT AS EXPECTED: {}; see {}", fmt::join(result.complaints, "; "), result.log.string());
}

int chaos(const Arguments& arguments) {
    if (arguments.command.size() < 2 || arguments.command.front() != "train") {
        throw ConfigError("chaos: write the training after --, such as `-- train configs/quickstart.yaml`");
    }
    const ChaosPlan plan = read_plan(arguments.plan);
    const ChaosTarget target{.config = arguments.command[1],
                             .overrides = {arguments.command.begin() + 2, arguments.command.end()},
                             .folder = arguments.out};
    check_world(read_experiment(target.config, target.overrides), plan.ranks);  // a mistake is told once, not once per fault
    fmt::print("{:<20} {:>4} {:>5} {:>8} {:>9}  {}\n", "fault", "rank", "exit", "expected", "after", "verdict");
    int failures = 0;
    for (const Drill& drill : plan.drills) {
        const DrillResult result = run_drill(drill, plan, target);
        const bool was_made = result.skipped.empty();
        fmt::print("{:<20} {:>4} {:>5} {:>8} {:>9}  {}\n", drill.name, drill.rank,
                   was_made ? std::to_string(result.exit_code) : "-", drill.expect.exit_code,
                   result.after_s > 0.0 ? fmt::format("{:.2f} s", result.after_s) : "-", verdict_text(result));
        std::fflush(stdout);
        failures += result.complaints.empty() ? 0 : 1;
    }
    return failures == 0 ? 0 : 1;
}

}  // namespace

void add_chaos(CLI::App& app, Action& chosen) {
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("chaos", "Make faults in a training, one job each, and check what comes of them");
    command->footer(
        "Example: lockstep chaos all -- train configs/quickstart.yaml\n"
        "A plan is described in docs/faults.md. Exit code 1 when a verdict is not the expected one.");
    command->add_option("plan", arguments->plan, "A plan (YAML), or `all` for every fault once")->required();
    command->add_option("--out", arguments->out, "Folder for the runs and what they print")->capture_default_str();
    command->add_option("command", arguments->command, "After --: train CONFIG [key=value ...]")->required();
    command->callback([arguments, &chosen] { chosen = [arguments] { return chaos(*arguments); }; });
}

}  // namespace lockstep::cli
