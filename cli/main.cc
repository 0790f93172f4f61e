#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/drill.h"
#include "core/error.h"
#include "core/log.h"
#include "core/nearest.h"
#include "launch/error_file.h"
#include "trainer/agreement.h"

namespace {

// The sub-commands that were reached, from the program itself on: lockstep, data, inspect.
std::vector<const CLI::App*> reached_commands(const CLI::App& app) {
    std::vector<const CLI::App*> reached{&app};
    while (!reached.back()->get_subcommands().empty()) reached.push_back(reached.back()->get_subcommands().front());
    return reached;
}

std::string command_path(const std::vector<const CLI::App*>& commands) {
    std::vector<std::string> names;
    for (const CLI::App* command : commands) names.push_back(command->get_name());
    return fmt::format("{}", fmt::join(names, " "));
}

std::vector<std::string> names_below(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::App* each : command.get_subcommands([](const CLI::App*) { return true; })) names.push_back(each->get_name());
    return names;
}

// The word that stands where a sub-command should, and is none; empty: there is no such word.
std::string stray_word(const std::vector<const CLI::App*>& commands, const std::vector<std::string>& words) {
    if (names_below(*commands.back()).empty() || words.size() < commands.size()) return {};
    const std::string& word = words[commands.size() - 1];
    return word.starts_with("-") ? std::string() : word;
}

// CLI11 says only that something is missing; this names the word or option that is none, and those that are.
std::string describe(const CLI::ParseError& error, const std::vector<const CLI::App*>& commands,
                     const std::vector<std::string>& words) {
    if (error.get_name() != "RequiredError" && error.get_name() != "CallForHelp") return error.what();
    for (const std::string& word : commands.back()->remaining()) {
        if (word.starts_with("-")) return fmt::format("unknown option {}", word);
    }
    const std::vector<std::string> names = names_below(*commands.back());
    if (names.empty()) return error.what();
    const std::string choice = fmt::format("the commands are {}", fmt::join(names, ", "));
    const std::string word = stray_word(commands, words);
    if (word.empty()) return "no command; " + choice;
    const std::string nearest = lockstep::nearest_name(word, names);
    return fmt::format("unknown command \"{}\"; {}{}", word, nearest.empty() ? "" : fmt::format("did you mean {}? ", nearest),
                       choice);
}

// Output that a full disk swallows must not look like success.
void finish_output() {
    std::cout.flush();
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return;
    throw lockstep::DeviceError("cannot write the output; free space, or send it elsewhere");
}

int run_main(int argc, char** argv) {
    CLI::App app("Lockstep: distributed data-parallel training of image classifiers", "lockstep");
    app.set_version_flag("--version", "lockstep " + lockstep::program_version(), "Print the version");
    app.require_subcommand(1);
    lockstep::cli::Action chosen;
    for (const auto add : {lockstep::cli::add_train, lockstep::cli::add_run, lockstep::cli::add_eval, lockstep::cli::add_bench,
                           lockstep::cli::add_time, lockstep::cli::add_simulate, lockstep::cli::add_tune, lockstep::cli::add_chaos,
                           lockstep::cli::add_checkpoint, lockstep::cli::add_report, lockstep::cli::add_config,
                           lockstep::cli::add_data, lockstep::cli::add_doctor, lockstep::cli::add_submit}) {
        add(app, chosen);
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const auto commands = reached_commands(app);
        const std::vector<std::string> words(argv + 1, argv + argc);
        const bool is_answer = error.get_exit_code() == 0;  // --help, --version
        if (is_answer && (error.get_name() != "CallForHelp" || stray_word(commands, words).empty())) {
            const int code = app.exit(error);
            finish_output();
            return code;
        }
        throw lockstep::ConfigError(
            fmt::format("command line: {}; see {} --help", describe(error, commands, words), command_path(commands)));
    }
    lockstep::cli::skew_clock_from_environment();
    const int code = chosen();
    finish_output();
    return code;
}

// On the screen and, for a launcher, in the error file it asked for.
int fail(const std::string& message, lockstep::ExitCode code) {
    lockstep::log::write_error(message);
    lockstep::write_error_file(message);
    return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
    using lockstep::ExitCode;
    try {
        return run_main(argc, argv);
    } catch (const lockstep::Error& error) {
        return fail(error.what(), error.exit_code());
    } catch (const std::bad_alloc&) {
        return fail("out of memory; use a smaller batch or network, or raise the memory limit (ulimit -v, cgroup)",
                    ExitCode::kEnvironment);
    } catch (const std::filesystem::filesystem_error& error) {
        return fail(fmt::format("the system refused: {}; check that path, its permissions, and TMPDIR if it is set", error.what()),
                    ExitCode::kEnvironment);
    } catch (const std::system_error& error) {  // threads and files that the machine refuses
        return fail(
            fmt::format("the system refused: {}; check memory and the limits of processes and files (ulimit -a)", error.what()),
            ExitCode::kEnvironment);
    } catch (const std::exception& error) {
        return fail(std::string("internal: ") + error.what(), ExitCode::kInternal);
    }
}
