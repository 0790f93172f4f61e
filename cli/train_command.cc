// `lockstep train`: one rank of a training, under any launcher or alone.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/drill.h"
#include "cli/job.h"
#include "configs/experiment.h"
#include "launch/world_from_environment.h"
#include "trainer/run_training.h"

namespace lockstep::cli {

namespace {

struct TrainArguments {
    std::string config;
    std::vector<std::string> overrides;
};

int train(const TrainArguments& arguments) {
    const Experiment experiment = read_experiment(arguments.config, arguments.overrides);
    return run_job(experiment, [&](const World& world, Store& store) {
        const std::string command = fmt::format("lockstep train {} {}", arguments.config, fmt::join(arguments.overrides, " "));
        const std::unique_ptr<StepObserver> drill = drill_from_environment(world);
        return static_cast<int>(run_training({.experiment = experiment,
                                              .world = world,
                                              .store = store,
                                              .command = command,
                                              .again = is_later_start(process_environment()),
                                              .observer = drill.get()}));
    });
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
    auto arguments = std::make_shared<TrainArguments>();
    CLI::App* command =
        app.add_subcommand("train", "Train a network: one rank, alone or under `lockstep run`, torchrun, mpirun, srun");
    command->footer(
        "Example: lockstep train configs/quickstart.yaml run.dir=runs/mine\n"
        "INT, TERM or USR1 to one rank stops all ranks after the step under way, with a checkpoint (exit code 138); the same "
        "command continues from there.");
    command->add_option("config", arguments->config, "The experiment (YAML)")->required();
    command->add_option("overrides", arguments->overrides, "key=value, such as optim.weight_decay=5e-4");
    command->callback([arguments, &chosen] { chosen = [arguments] { return train(*arguments); }; });
}

}  // namespace lockstep::cli
