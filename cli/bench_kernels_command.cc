// `lockstep bench kernels`: the memory-bound layers against the speed of memory.
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bench/kernels_bench.h"
#include "cli/commands.h"
#include "core/world.h"
#include "launch/threads.h"

namespace lockstep::cli {

namespace {

int bench_kernels(bench::KernelsBenchOptions options, bool json) {
    const World world;
    const ThreadBudget budget = plan_threads(world, options.compute.threads);
    apply_threads(world, budget);
    options.compute.threads = budget.compute_threads;
    const bench::KernelsBenchResult result = bench::run_kernels_bench(options);
    fmt::print("{}", json ? bench::to_json(result) + "\n" : bench::to_text(result));
    std::fflush(stdout);
    return 0;
}

}  // namespace

void add_bench_kernels(CLI::App& bench, Action& chosen) {
    CLI::App* command = bench.add_subcommand(
        "kernels",
        "time batch norm, pooling, sigmoid, addition and update on tensors beyond the caches, in GB/s and as a share of a copy");
    const auto options = std::make_shared<bench::KernelsBenchOptions>();  // shared with the callback below, as is `json`
    const auto json = std::make_shared<bool>(false);
    options->compute.threads = 0;
    command->add_option("--threads", options->compute.threads, "compute threads; 0: all allowed cores")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    command->add_option("--repeats", options->repeats, "of each kernel; the median counts")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    command->add_option("--images", options->images, "in the tensors")->capture_default_str()->check(CLI::PositiveNumber);
    command->add_option("--channels", options->channels, "of the tensors")->capture_default_str()->check(CLI::PositiveNumber);
    command->add_option("--side", options->side, "of the tensors, pixels")->capture_default_str()->check(CLI::Range(3, 4096));
    command->add_option("--parameters", options->parameters, "of the update")->capture_default_str()->check(CLI::PositiveNumber);
    command->add_flag("--json", *json, "print one JSON object");
    command->parse_complete_callback(
        [options, json, &chosen] { chosen = [options, json] { return bench_kernels(*options, *json); }; });
}

}  // namespace lockstep::cli
