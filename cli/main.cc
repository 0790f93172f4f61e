#include <exception>
#include <functional>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "core/error.h"
#include "core/log.h"

namespace {

int run_main(int argc, char** argv) {
    CLI::App app("Lockstep: distributed data-parallel training of image classifiers", "lockstep");
    app.require_subcommand(1);
    lockstep::cli::Action chosen;
    for (const auto add :
         {lockstep::cli::add_train, lockstep::cli::add_run, lockstep::cli::add_eval, lockstep::cli::add_bench,
          lockstep::cli::add_report, lockstep::cli::add_config, lockstep::cli::add_data, lockstep::cli::add_doctor}) {
        add(app, chosen);
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const int code = app.exit(error);
        return code == 0 ? 0 : static_cast<int>(lockstep::ExitCode::kConfig);
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
    } catch (const std::exception& error) {
        lockstep::log::write_error(std::string("internal: ") + error.what());
        return static_cast<int>(lockstep::ExitCode::kInternal);
    }
}
