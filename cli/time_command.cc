// `lockstep time`: where the time of a step goes, layer by layer, on this machine and without data.
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bench/caffe_times.h"
#include "bench/layer_times.h"
#include "cli/choice.h"
#include "cli/commands.h"
#include "configs/experiment.h"
#include "core/error.h"
#include "core/world.h"
#include "launch/threads.h"
#include "trainer/recipe.h"

namespace lockstep::cli {

namespace {

struct TimeArguments {
    std::string network;  // a configuration's path or a model's name
    std::vector<std::string> overrides;
    int batch = 0, threads = 0, iterations = 0;  // 0: the usual
    Phase phase = Phase::training;
    std::string fusion, autotune, recompute;  // empty: as configured
    bool exact = false, caffe = false, memory = false, json = false;
};

constexpr int kUsualBatch = 32;
constexpr int kUsualIterations = 10;
constexpr int kCaffesIterations = 50;

bool is_config(const std::string& network) {
    return network.ends_with(".yaml") || network.ends_with(".yml") || std::filesystem::exists(network);
}

bench::LayerTimesOptions of_config(const TimeArguments& arguments, int& threads) {
    const Experiment experiment = read_experiment(arguments.network, arguments.overrides);
    const int64_t classes = experiment.model.num_classes;
    bench::LayerTimesOptions options{
        .model = model_options(experiment, classes > 0 ? classes : bench::usual_model(experiment.model.arch).num_classes)};
    options.step.backend = experiment.train.backend;
    options.step.compute = backend_options(experiment, 1);
    options.step.cache_folder = experiment.compute.cache;
    options.step.batch = static_cast<int>(experiment.batch.per_replica);
    options.step.optimizer = sgd_options(experiment);
    if (threads == 0) threads = static_cast<int>(experiment.train.threads);
    return options;
}

bench::LayerTimesOptions of_model(const TimeArguments& arguments) {
    if (!arguments.overrides.empty()) {
        throw ConfigError(
            fmt::format("time: '{}' is for a CONFIG, {} is a model's name", arguments.overrides.front(), arguments.network));
    }
    bench::LayerTimesOptions options{.model = bench::usual_model(arguments.network)};
    options.step.batch = kUsualBatch;
    return options;
}

bench::LayerTimesOptions options_of(const TimeArguments& arguments) {
    int threads = arguments.threads;
    bench::LayerTimesOptions options = is_config(arguments.network) ? of_config(arguments, threads) : of_model(arguments);
    if (arguments.batch > 0) options.step.batch = arguments.batch;
    if (!arguments.fusion.empty()) options.step.compute.fusion = fusion_named(arguments.fusion);
    if (!arguments.autotune.empty()) options.step.compute.autotune = autotune_named(arguments.autotune);
    if (!arguments.recompute.empty()) options.step.compute.recompute = recompute_named(arguments.recompute);
    if (arguments.exact) options.step.compute.exact_convolution = true;
    options.step.phase = arguments.phase;
    options.iterations = arguments.iterations > 0 ? arguments.iterations : arguments.caffe ? kCaffesIterations : kUsualIterations;
    const World world;
    const ThreadBudget budget = plan_threads(world, threads);
    apply_threads(world, budget);
    options.step.compute.threads = budget.compute_threads;
    return options;
}

int time_layers(const TimeArguments& arguments) {
    const bench::LayerTimesOptions options = options_of(arguments);
    std::string text;
    if (arguments.caffe) {
        if (arguments.phase != Phase::training || arguments.memory) {
            throw ConfigError("time: --caffe times forward and backward as Caffe does; leave out --phase infer and --memory");
        }
        const bench::CaffeTimes times = bench::measure_caffe_times(options);
        text = arguments.json ? to_json(times) + "\n" : to_text(times);
    } else {
        const bench::LayerTimes times = bench::measure_layer_times(options);
        text = arguments.json ? to_json(times) + "\n" : to_text(times, arguments.memory);
    }
    fmt::print("{}", text);
    std::fflush(stdout);
    return 0;
}

}  // namespace

void add_time(CLI::App& app, Action& chosen) {
    const auto arguments = std::make_shared<TimeArguments>();  // shared with the callback below, which outlives this function
    CLI::App* command = app.add_subcommand("time", "Time each layer of a network: forward, backward, update, bandwidth, memory");
    command->footer("Examples: lockstep time resnet50 --batch 16\n          lockstep time configs/cifar10_resnet20.yaml --memory");
    const std::map<std::string, Phase> phases{{"train", Phase::training}, {"infer", Phase::evaluation}};
    command->add_option("network", arguments->network, "CONFIG (YAML) or MODEL, a model's name with its usual sizes")->required();
    command->add_option("overrides", arguments->overrides, "key=value, on top of the CONFIG");
    command->add_option("--batch", arguments->batch, "Images per step; 0: batch.per_replica, or 32 for a MODEL")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--threads", arguments->threads, "Compute threads; 0: train.threads or all allowed cores")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--iterations", arguments->iterations, "Timed iterations; 0: 10, with --caffe 50")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--phase", arguments->phase, "train: forward, backward and update; infer: forward with running statistics")
        ->transform(one_of(phases));
    command->add_option("--fusion", arguments->fusion, "compute.fusion: off, bn_relu or all")
        ->check(one_of({"off", "bn_relu", "all"}));
    command->add_option("--autotune", arguments->autotune, "compute.autotune: off, heuristic or measure")
        ->check(one_of({"off", "heuristic", "measure"}));
    command->add_option("--recompute", arguments->recompute, "compute.recompute: off or norms")->check(one_of({"off", "norms"}));
    command->add_flag("--exact", arguments->exact, "compute.exact_convolution: no Winograd");
    command->add_flag("--caffe", arguments->caffe, "Measure and print as Caffe's time does: averages, no update");
    command->add_flag("--memory", arguments->memory, "Also print the memory plan: every buffer, its life and what it shares");
    command->add_flag("--json", arguments->json, "One JSON object on one line; docs/time.md describes it");
    command->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return time_layers(*arguments); }; });
}

}  // namespace lockstep::cli
