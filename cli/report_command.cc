#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "core/error.h"
#include "core/files.h"
#include "report/gate.h"
#include "report/recorder.h"

namespace lockstep::cli {

namespace {

struct Arguments {
    ReportOptions report;
    std::string run_dir;
    bool json = false;
    std::string fail_if;
};

int run_report(const Arguments& arguments) {
    const std::string summary = write_report(arguments.report);
    const std::string json = read_file(arguments.report.run_dir / "report.json");
    fmt::print("{}", arguments.json ? json : summary);
    if (arguments.fail_if.empty()) return 0;
    if (const auto reason = closed_gate(json, arguments.fail_if)) {
        throw DataError(fmt::format("{}: {}; asked for by --fail-if", arguments.run_dir, *reason));
    }
    return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& chosen) {
    auto arguments = std::make_shared<Arguments>();  // shared by the two callbacks, which outlive this call
    CLI::App* command =
        app.add_subcommand("report", "Where the time of a run went: report.html, report.json, trace.json and a summary");
    command->add_option("RUN_DIR", arguments->run_dir, "Folder of a run, finished or not")->required();
    command->add_flag("--json", arguments->json, "Print report.json instead of the summary");
    command->add_option("--fail-if", arguments->fail_if,
                        "Exit with code 3 when a headline value of report.json meets this, e.g. \"sync_efficiency<0.9\"");
    command->add_option("--skip-steps", arguments->report.skip_first_steps, "Steps at each start that are not steady yet")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--trace-steps", arguments->report.trace_steps, "Steps in trace.json, the last ones")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->callback([arguments, &chosen] {
        arguments->report.run_dir = arguments->run_dir;
        chosen = [arguments] { return run_report(*arguments); };
    });
}

}  // namespace lockstep::cli
