// `lockstep data audit`: proves from a run's log that each sample was used once in each epoch.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "core/error.h"
#include "core/json_text.h"
#include "trainer/audit.h"

namespace lockstep::cli {

namespace {

struct Arguments {
    std::string run_dir;
    bool json = false;
};

std::string worlds_text(const AuditReport& report) {
    std::vector<std::string> parts;
    for (const auto& [step, size] : report.world_from_step) parts.push_back(fmt::format("{} from step {}", size, step));
    return fmt::format("{}", fmt::join(parts, ", "));
}

void print(const Arguments& arguments, const AuditReport& report) {
    if (arguments.json) {
        nlohmann::ordered_json worlds = nlohmann::ordered_json::array();
        for (const auto& [step, size] : report.world_from_step) worlds.push_back({{"from_step", step}, {"ranks", size}});
        const nlohmann::ordered_json json = {{"steps", report.steps},       {"whole_epochs", report.whole_epochs},
                                             {"samples", report.samples},   {"worlds", worlds},
                                             {"problems", report.problems}, {"sound", report.problems.empty()}};
        fmt::print("{}\n", json_text(json, 2));
        return;
    }
    fmt::print("{}: {} steps, {} samples, ranks: {}\n", arguments.run_dir, report.steps, report.samples, worlds_text(report));
    for (const std::string& problem : report.problems) fmt::print("{}\n", problem);
    if (report.problems.empty()) {
        fmt::print("in each of {} whole epochs every sample was used once; none was used twice since\n", report.whole_epochs);
    }
}

int audit(const Arguments& arguments) {
    const AuditReport report = check_audit(arguments.run_dir);
    print(arguments, report);
    std::fflush(stdout);
    return static_cast<int>(report.problems.empty() ? ExitCode::kDone : ExitCode::kData);
}

}  // namespace

void add_data_audit(CLI::App& data, Action& chosen) {
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command = data.add_subcommand("audit", "Prove that a run used each sample once in each epoch (run.audit=true)");
    command->footer("Exit code 3 when a sample was used twice or left out; the first problems are named.");
    command->add_option("run", arguments->run_dir, "A run folder")->required();
    command->add_flag("--json", arguments->json, "JSON instead of text");
    command->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return audit(*arguments); }; });
}

}  // namespace lockstep::cli
