#include <cstdint>
#include <cstdio>
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
    std::string run_dir, out;
    bool json = false;
    std::string fail_if;
};

// A run folder may be one that this user can only read: what there is to say is said before.
std::string write(const Report& report, const Arguments& arguments) {
    try {
        if (!arguments.out.empty()) make_directories(arguments.out);
        return write_report(report, arguments.out.empty() ? arguments.run_dir : arguments.out);
    } catch (const DeviceError& error) {
        std::fflush(stdout);
        throw DeviceError(fmt::format("{}; --out FOLDER writes the report's files elsewhere", error.what()));
    }
}

int run_report(const Arguments& arguments) {
    const Report report = make_report(arguments.report);
    const std::string& json = report.files.at("report.json");
    fmt::print("{}", arguments.json ? json : report.summary);
    const std::string written = write(report, arguments);
    if (!arguments.json) fmt::print("{}", written);
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
    command->add_option("--out", arguments->out,
                        "Folder for report.html, report.json and trace.json instead of RUN_DIR; made if need be");
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
