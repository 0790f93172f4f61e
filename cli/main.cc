#include <exception>
#include <functional>
#include <new>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "core/error.h"
#include "core/log.h"

namespace {

// The sub-command that was reached, such as "lockstep data inspect".
std::string command_path(const CLI::App& app) {
    const auto reached = app.get_subcommands();
    return reached.empty() ? app.get_name() : app.get_name() + " " + command_path(*reached.front());
}

int run_main(int argc, char** argv) {
    CLI::App app("Lockstep: distributed data-parallel training of image classifiers", "lockstep");
    app.require_subcommand(1);
    lockstep::cli::Action chosen;
    for (const auto add : {lockstep::cli::add_train, lockstep::cli::add_run, lockstep::cli::add_eval, lockstep::cli::add_bench,
                           lockstep::cli::add_time, lockstep::cli::add_simulate, lockstep::cli::add_tune, lockstep::cli::add_report,
                           lockstep::cli::add_config, lockstep::cli::add_data, lockstep::cli::add_doctor}) {
        add(app, chosen);
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help
        throw lockstep::ConfigError(fmt::format("command line: {}; see {} --help", error.what(), command_path(app)));
    }
    return chosen();
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run_main(argc, argv);
    } catch (const lockstep::Error& error) {
        lockstep::log::write_error(error.what());
        return static_cast<int>(error.exit_code());
    } catch (const std::bad_alloc&) {
        lockstep::log::write_error("out of memory; use a smaller batch or network, or raise the memory limit (ulimit -v, cgroup)");
        return static_cast<int>(lockstep::ExitCode::kEnvironment);
    } catch (const std::system_error& error) {  // threads and files that the machine refuses
        lockstep::log::write_error(
            fmt::format("the system refused: {}; check memory and the limits of processes and files (ulimit -a)", error.what()));
        return static_cast<int>(lockstep::ExitCode::kEnvironment);
    } catch (const std::exception& error) {
        lockstep::log::write_error(std::string("internal: ") + error.what());
        return static_cast<int>(lockstep::ExitCode::kInternal);
    }
}
