// `lockstep eval`: a checkpoint against the validation set, on any number of ranks with the same result.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/job.h"
#include "configs/experiment.h"
#include "trainer/checkpoint.h"
#include "trainer/run_evaluation.h"

namespace lockstep::cli {

namespace {

struct EvalArguments {
    std::string place;
    std::vector<std::string> overrides;
    bool json = false;
};

void print(const EvaluationResult& result, const std::string& checkpoint, bool json) {
    if (json) {
        // The shortest texts from which the same numbers come back.
        fmt::print(R"({{"val.count": {}, "val.top1": {}, "val.top5": {}, "val.loss": {}}})"
                   "\n",
                   result.count, result.top1, result.top5, result.loss);
    } else {
        fmt::print("{}: {} images, top-1 {:.2f} %, top-5 {:.2f} %, loss {:.6f}\n", checkpoint, result.count, 100.0 * result.top1,
                   100.0 * result.top5, result.loss);
    }
    std::fflush(stdout);
}

int evaluate(const EvalArguments& arguments) {
    const FoundCheckpoint checkpoint = open_checkpoint(arguments.place);
    const Experiment experiment = read_experiment((checkpoint.path / "config.yaml").string(), arguments.overrides);
    return run_job(experiment, [&](const World& world, Store& store) {
        const EvaluationResult result =
            run_evaluation({.experiment = experiment, .checkpoint = checkpoint.path, .world = world, .store = store});
        if (world.is_leader()) print(result, checkpoint.path.string(), arguments.json);
        return 0;
    });
}

}  // namespace

void add_eval(CLI::App& app, Action& chosen) {
    auto arguments = std::make_shared<EvalArguments>();
    CLI::App* command = app.add_subcommand("eval", "Validate a checkpoint: images, top-1, top-5 and loss");
    command->footer(
        "Example: lockstep eval runs/quickstart data.val.path=photos/val\nA run folder stands for its latest sound checkpoint.");
    command->add_option("checkpoint", arguments->place, "A checkpoint or a run folder")->required();
    command->add_option("overrides", arguments->overrides, "key=value on top of the checkpoint's own configuration");
    command->add_flag("--json", arguments->json, "One JSON object on one line");
    command->callback([arguments, &chosen] { chosen = [arguments] { return evaluate(*arguments); }; });
}

}  // namespace lockstep::cli
