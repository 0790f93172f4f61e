// `lockstep bench update`: what the ranks of a node do after backward, shared out or not.
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bench/update_bench.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "configs/experiment.h"
#include "launch/threads.h"
#include "trainer/communication.h"

namespace lockstep::cli {

namespace {

int bench_update(bench::UpdateBenchOptions options, bool json) {
    const Experiment experiment;
    return run_job(experiment, [&](const World& world, Store& store) {
        const ThreadBudget budget = plan_threads(world, options.threads);
        apply_threads(world, budget);
        options.threads = budget.compute_threads;
        CommunicatorOptions communication =
            communicator_options(experiment, bench::update_bench_segment_bytes(options), bench::update_bench_common_bytes(options));
        communication.flight_record_path.clear();
        const auto communicator = make_communicator(world, store, communication);
        const bench::UpdateBenchResult result = bench::run_update_bench(*communicator, options);
        if (world.is_leader()) fmt::print("{}", json ? bench::to_json(result) + "\n" : bench::to_text(result));
        std::fflush(stdout);
        communicator->barrier({.what = "end of bench"});
        return 0;
    });
}

}  // namespace

void add_bench_update(CLI::App& bench, Action& chosen) {
    CLI::App* command =
        bench.add_subcommand("update", "time sum and update of a node's ranks: whole, with a copy each, with one copy for all");
    command->footer("Example: lockstep run --nproc-per-node 2 -- bench update");
    const auto options = std::make_shared<bench::UpdateBenchOptions>();  // shared with the callback below, as is `json`
    const auto json = std::make_shared<bool>(false);
    options->threads = 0;
    command->add_option("--parameters", options->parameters, "of the network")->capture_default_str()->check(CLI::PositiveNumber);
    command->add_option("--bucket-bytes", options->bucket_bytes, "of a bucket; a multiple of 64")
        ->capture_default_str()
        ->check(CLI::Range(64, 1 << 30));
    command->add_option("--threads", options->threads, "per rank; 0: allowed cores / ranks")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    command->add_option("--rounds", options->rounds, "measured rounds")->capture_default_str()->check(CLI::PositiveNumber);
    command->add_flag("--json", *json, "print one JSON object");
    command->parse_complete_callback(
        [options, json, &chosen] { chosen = [options, json] { return bench_update(*options, *json); }; });
}

}  // namespace lockstep::cli
