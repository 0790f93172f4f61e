// `lockstep config check | show | schema`.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/check_experiment.h"
#include "cli/commands.h"
#include "configs/reader.h"
#include "configs/reference_page.h"
#include "core/log.h"

namespace lockstep::cli {

namespace {

struct ConfigArguments {
    std::string path;
    std::vector<std::string> overrides;
    int world_size = 0;
    bool resolved = false, origin = false, markdown = false;
};

ReadResult read(const ConfigArguments& arguments) {
    const auto environment = [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    };
    ReadResult result = read_experiment_with_origins(arguments.path, arguments.overrides, environment);
    for (const std::string& warning : result.experiment.warnings) log::write_warn(warning);
    return result;
}

int check(const ConfigArguments& arguments) {
    const Experiment experiment = read(arguments).experiment;
    check_model(experiment);
    if (arguments.world_size > 0) check_world(experiment, arguments.world_size);
    fmt::print("{}: fine (batch {} of {} virtual workers of {} images, hash {})\n", arguments.path, experiment.batch.global,
               experiment.batch.global / experiment.batch.per_replica, experiment.batch.per_replica, experiment.hash);
    return 0;
}

// Only what was set, unless `resolved`.
int show(const ConfigArguments& arguments) {
    const ReadResult result = read(arguments);
    fmt::print("{}", shown_text(result.experiment, result.origins, {.defaults = arguments.resolved, .comments = arguments.origin}));
    return 0;
}

void add_file_arguments(CLI::App& command, ConfigArguments& arguments) {
    command.add_option("config", arguments.path, "The YAML file")->required();
    command.add_option("overrides", arguments.overrides, "key=value ...");
}

}  // namespace

void add_config(CLI::App& app, Action& chosen) {
    auto arguments = std::make_shared<ConfigArguments>();
    CLI::App* command = app.add_subcommand("config", "Check, show and explain configurations");
    command->require_subcommand(1);

    CLI::App* check_command =
        command->add_subcommand("check", "Validate without running; exit code 2 and one line when it is wrong");
    add_file_arguments(*check_command, *arguments);
    check_command->add_option("--ranks", arguments->world_size, "Check also that the batch can be dealt to this many ranks");
    check_command->callback([arguments, &chosen] { chosen = [arguments] { return check(*arguments); }; });

    CLI::App* show_command = command->add_subcommand("show", "Print what the files and overrides say together");
    add_file_arguments(*show_command, *arguments);
    show_command->add_flag("--resolved", arguments->resolved, "All keys, with their defaults");
    show_command->add_flag("--origin", arguments->origin, "Where each value comes from");
    show_command->callback([arguments, &chosen] { chosen = [arguments] { return show(*arguments); }; });

    CLI::App* schema_command = command->add_subcommand("schema", "Print the JSON Schema for editors");
    schema_command->add_flag("--markdown", arguments->markdown, "Print the reference page docs/config.md instead");
    schema_command->callback([arguments, &chosen] {
        chosen = [arguments] {
            fmt::print("{}", arguments->markdown ? reference_page() : json_schema());
            return 0;
        };
    });
}

}  // namespace lockstep::cli
