#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bench/simulate.h"
#include "cli/commands.h"
#include "configs/scalars.h"
#include "core/error.h"

namespace lockstep::cli {

namespace {

struct Arguments {
    bench::SimulateOptions options;
    std::vector<int> nodes;          // instead of ranks
    std::vector<std::string> sizes;  // as written
    double gbit = 25.0;
    double local_gbit = 160.0;
    std::string unfused_model;
    bool json = false;
};

int64_t size_of(const std::string& text) {
    if (const auto bytes = parse_integer(text); bytes && *bytes > 0) return *bytes;
    if (const auto bytes = parse_byte_count(text); bytes && *bytes > 0) return *bytes;
    throw ConfigError(fmt::format("--sizes: `{}` is no size; write 4, 64KiB or 100MiB", text));
}

int simulate(const Arguments& arguments) {
    bench::SimulateOptions options = arguments.options;
    constexpr double kBitsPerByte = 8.0;
    options.remote.wire_ns_per_byte = kBitsPerByte / arguments.gbit;
    options.local.wire_ns_per_byte = kBitsPerByte / arguments.local_gbit;
    options.local.sum_ns_per_byte = options.remote.sum_ns_per_byte;
    if (!arguments.nodes.empty()) options.ranks.clear();
    for (const int nodes : arguments.nodes) options.ranks.push_back(nodes * options.local_count);
    if (!arguments.sizes.empty()) options.sizes.clear();
    for (const std::string& text : arguments.sizes) options.sizes.push_back(size_of(text));

    const auto unfused = arguments.unfused_model.empty() ? std::vector<bench::UnfusedRow>()
                                                         : bench::simulate_unfused(options, arguments.unfused_model);
    const auto rows = simulate_allreduce(options);
    std::cout << (arguments.json ? to_json(options, rows, unfused) + "\n" : to_text(options, rows, unfused)) << std::flush;
    return 0;
}

void add_allreduce(CLI::App& parent, Action& chosen) {
    CLI::App* command = parent.add_subcommand("allreduce", "time of each schedule on a network given by its figures");
    const auto arguments = std::make_shared<Arguments>();  // shared with the callback below, which outlives this function
    bench::SimulateOptions& options = arguments->options;
    CLI::Option* ranks = command->add_option("--ranks", options.ranks, "numbers of ranks")->delimiter(',')->capture_default_str();
    command->add_option("--nodes", arguments->nodes, "numbers of nodes, each with --local ranks; instead of --ranks")
        ->delimiter(',')
        ->check(CLI::PositiveNumber)
        ->excludes(ranks);
    command->add_option("--local", options.local_count, "ranks per node")->check(CLI::PositiveNumber)->capture_default_str();
    command->add_option("--sizes", arguments->sizes, "bytes per rank: 4,64KiB,100MiB")->delimiter(',');
    command->add_option("--latency-us", options.remote.latency_us, "L between nodes: one way, without the processors' work")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--overhead-us", options.remote.overhead_us, "o: a processor's work per message and side")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--gbit", arguments->gbit, "rate between nodes, Gbit/s each way")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command->add_option("--sum-ns-per-byte", options.remote.sum_ns_per_byte, "adding received numbers")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--local-latency-us", options.local.latency_us, "L inside a node")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--local-overhead-us", options.local.overhead_us, "o inside a node")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--local-gbit", arguments->local_gbit, "rate inside a node, per rank")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command
        ->add_option("--algorithm", options.selection.algorithm,
                     "auto (all, each at its best), exchange, halving_doubling, ring, tree or double_tree")
        ->capture_default_str();
    command->add_option("--radix", options.selection.radix, "of exchange and halving_doubling; 0: the best")->capture_default_str();
    command->add_option("--chunks", options.selection.chunks, "of ring, tree and double_tree; 0: the best")->capture_default_str();
    command->add_option("--unfused", arguments->unfused_model,
                        "also: one allreduce per tensor of this model, such as resnet50, by halving_doubling and ring");
    command->add_flag("--json", arguments->json, "print one JSON object");
    command->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return simulate(*arguments); }; });
}

}  // namespace

void add_simulate(CLI::App& app, Action& chosen) {
    CLI::App* simulate = app.add_subcommand("simulate", "What a collective would take on a network that is not here");
    simulate->require_subcommand(1);
    add_allreduce(*simulate, chosen);
}

}  // namespace lockstep::cli
