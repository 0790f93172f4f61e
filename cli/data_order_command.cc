// `lockstep data list`: which sample of a run goes to which rank and step. Reads names only; decodes nothing.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "configs/experiment.h"
#include "core/error.h"
#include "core/text.h"
#include "data_loader/sampler.h"
#include "data_loader/source.h"
#include "trainer/recipe.h"

namespace lockstep::cli {

namespace {

struct Arguments {
    std::string config;
    std::vector<std::string> overrides;
    int64_t first_epoch = 0;
    int epochs = 1;
    int ranks = 1;
    int rank = -1;  // all
};

void print_step(const Source& source, const Sampler& sampler, const std::vector<int64_t>& order, int64_t epoch, int64_t step,
                const Arguments& arguments) {
    Record record;
    for (int rank = 0; rank < arguments.ranks; ++rank) {
        if (arguments.rank >= 0 && rank != arguments.rank) continue;
        const WorkerRange mine = sampler.workers_of_rank(step, rank, arguments.ranks);
        for (int64_t worker = mine.first; worker < mine.last; ++worker) {
            for (int64_t place = 0; place < sampler.samples_in_worker(step, worker); ++place) {
                const int64_t sample = order[static_cast<size_t>(sampler.position(step, worker) + place)];
                source.read(sample, record);
                fmt::print("{}\t{}\t{}\t{}\t{}\t{}\t{}\n", epoch, epoch * sampler.steps_per_epoch() + step, rank, worker, sample,
                           record.label, printable(record.key));
            }
        }
    }
}

int print_order(const Arguments& arguments) {
    if (arguments.rank >= arguments.ranks) {
        throw ConfigError(fmt::format("--rank {} is outside [0, {}]; set --world", arguments.rank, arguments.ranks - 1));
    }
    const Experiment experiment = read_experiment(arguments.config, arguments.overrides);
    check_world(experiment, arguments.ranks);
    const std::unique_ptr<Source> source = open_source(training_source_options(experiment));
    const Sampler sampler(sampler_options(experiment, source->size()));
    fmt::print("epoch\tstep\trank\tworker\tsample\tlabel\tname\n");
    for (int64_t epoch = arguments.first_epoch; epoch < arguments.first_epoch + arguments.epochs; ++epoch) {
        const std::vector<int64_t> order = sampler.permutation(epoch);
        for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
            print_step(*source, sampler, order, epoch, step, arguments);
        }
    }
    return 0;
}

}  // namespace

void add_data_order(CLI::App& data, Action& chosen) {
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command = data.add_subcommand("list", "Print the order of the training samples: step, rank, virtual worker, name");
    command->alias("order");
    command->footer("Example: lockstep data list configs/quickstart.yaml run.seed=7 --epoch 3 --rank 1 --world 2");
    command->add_option("config", arguments->config, "The experiment (YAML)")->required();
    command->add_option("overrides", arguments->overrides, "key=value, as for `lockstep train`");
    command->add_option("--epoch", arguments->first_epoch, "First epoch to print")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--epochs", arguments->epochs, "Epochs to print")->check(CLI::PositiveNumber)->capture_default_str();
    command->add_option("--world,--ranks", arguments->ranks, "Ranks of the run")->check(CLI::PositiveNumber)->capture_default_str();
    command->add_option("--rank", arguments->rank, "Only this rank's samples")->check(CLI::NonNegativeNumber);
    command->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return print_order(*arguments); }; });
}

}  // namespace lockstep::cli
