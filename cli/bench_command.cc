#include <iostream>
#include <map>
#include <memory>

#include <CLI/CLI.hpp>

#include "bench/step_bench.h"
#include "cli/choice.h"
#include "cli/commands.h"
#include "core/world.h"
#include "launch/threads.h"

namespace lockstep::cli {

namespace {

struct StepArguments {
    bench::StepBenchOptions options;
    int threads = 0;
    bool json = false;
};

int bench_step(const StepArguments& arguments) {
    bench::StepBenchOptions options = arguments.options;
    const World world;
    const ThreadBudget budget = plan_threads(world, arguments.threads);
    apply_threads(world, budget);
    options.threads = budget.compute_threads;
    const bench::StepBenchResult result = bench::run_step_bench(options);
    std::cout << (arguments.json ? bench::to_json(result) + "\n" : bench::to_text(result)) << std::flush;
    return 0;
}

void add_step(CLI::App& parent, Action& chosen) {
    CLI::App* step = parent.add_subcommand("step", "time forward + backward + SGD update of a model on synthetic data");
    const auto arguments = std::make_shared<StepArguments>();  // shared with the callback below, which outlives this function
    bench::StepBenchOptions& options = arguments->options;
    const std::map<std::string, Precision> precisions{{"fp32", Precision::fp32}, {"bf16", Precision::bf16}};
    step->add_option("--model", options.model, "model name")->capture_default_str();
    step->add_option("--batch", options.batch, "images per step")->capture_default_str()->check(CLI::PositiveNumber);
    step->add_option("--threads", arguments->threads, "compute threads; 0: all allowed cores")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    step->add_option("--precision", options.precision, "fp32 or bf16")->transform(one_of(precisions));
    step->add_option("--backend", options.backend, "onednn or reference")->capture_default_str();
    step->add_option("--image-size", options.image_size, "pixels; 0: the model's usual size")->check(CLI::NonNegativeNumber);
    step->add_option("--num-classes", options.num_classes, "0: the model's usual number")->check(CLI::NonNegativeNumber);
    step->add_option("--steps", options.steps, "timed steps")->capture_default_str()->check(CLI::PositiveNumber);
    step->add_option("--warmup", options.warmup_steps, "steps before")->capture_default_str()->check(CLI::PositiveNumber);
    const std::map<std::string, Fusion> fusions{{"off", Fusion::off}, {"bn_relu", Fusion::bn_relu}, {"all", Fusion::all}};
    step->add_option("--fusion", options.fusion, "compute.fusion: off, bn_relu or all")->transform(one_of(fusions));
    const std::map<std::string, Autotune> autotunes{
        {"off", Autotune::off}, {"heuristic", Autotune::heuristic}, {"measure", Autotune::measure}};
    step->add_option("--autotune", options.autotune, "compute.autotune: off, heuristic or measure")->transform(one_of(autotunes));
    const std::map<std::string, Recompute> recomputes{{"off", Recompute::off}, {"norms", Recompute::norms}};
    step->add_option("--recompute", options.recompute, "compute.recompute: off or norms")->transform(one_of(recomputes));
    step->add_flag("--exact", options.exact_convolution, "compute.exact_convolution: no Winograd");
    step->add_flag_callback(
        "--inference", [&options] { options.phase = Phase::evaluation; },
        "time forward with running statistics only: no backward, no update");
    step->add_flag(
        "--plain-between-ops", options.plain_between_ops,
        "bring every tensor between two ops to the plain layout, to see what layout propagation is worth; with --fusion off");
    step->add_flag_callback(
        "--no-shared-memory", [&options] { options.share_memory = false; },
        "one place in memory for each buffer, to see what sharing is worth");
    step->add_flag("--layers", options.layers, "also print the time per kind of op");
    step->add_flag("--json", arguments->json, "print one JSON object");
    step->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return bench_step(*arguments); }; });
}

}  // namespace

void add_bench(CLI::App& app, Action& chosen) {
    CLI::App* bench = app.add_subcommand("bench", "Measure parts of the system on this machine");
    bench->require_subcommand(1);
    add_step(*bench, chosen);
    add_bench_allreduce(*bench, chosen);
    add_bench_loader(*bench, chosen);
    add_bench_update(*bench, chosen);
    add_bench_kernels(*bench, chosen);
}

}  // namespace lockstep::cli
