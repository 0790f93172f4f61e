#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bench/allreduce_bench.h"
#include "cli/choice.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "models/models.h"
#include "nn/executor.h"
#include "trainer/bucket_plan.h"

namespace lockstep::cli {

namespace {

struct AllreduceArguments {
    bench::AllreduceBenchOptions options{.peers = bench::peer_names(), .lockstep_backends = {"auto"}};
    std::vector<std::string> sizes{"default"};
    std::string settings = "sweep";
    std::string plot;
    bool json = false;
};

// The gradients of ResNet-50 in the order in which they become ready: tensor by tensor, and in the buckets that training uses.
std::vector<bench::AllreduceUnit> resnet50_units() {
    const Graph graph = build_model({.arch = "resnet50"});
    HeapPool pool;
    const ParameterArena arena(make_backend("reference", {})->plan_parameters(graph, 1), pool, pool, 0);
    bench::AllreduceUnit tensors, buckets;
    for (const ParameterEntry& entry : arena.entries()) {
        if (is_trainable(entry.spec.kind)) tensors.counts.push_back(entry.physical_count);
    }
    for (const Bucket& bucket : plan_buckets(arena, {})) buckets.counts.push_back(bucket.count);
    tensors.label = fmt::format("resnet50: {} tensors", tensors.counts.size());
    buckets.label = fmt::format("resnet50: {} buckets", buckets.counts.size());
    return {tensors, buckets};
}

// 4 B to 64 MiB in steps of four, and what ResNet-50 needs.
std::vector<std::string> default_sizes() {
    std::vector<std::string> sizes;
    for (int64_t bytes = 4; bytes <= (int64_t{64} << 20); bytes *= 4) sizes.push_back(std::to_string(bytes));
    sizes.insert(sizes.end(), {"102228128", "resnet50"});
    return sizes;
}

std::vector<bench::AllreduceUnit> units_of(const std::vector<std::string>& sizes) {
    std::vector<bench::AllreduceUnit> units;
    for (const std::string& size : sizes) {
        std::vector<bench::AllreduceUnit> more;
        if (size == "default") {
            more = units_of(default_sizes());
        } else if (size == "resnet50") {
            more = resnet50_units();
        } else {
            more = {bench::parse_unit(size)};
        }
        units.insert(units.end(), more.begin(), more.end());
    }
    return units;
}

int bench_allreduce(const AllreduceArguments& arguments) {
    bench::AllreduceBenchOptions options = arguments.options;
    options.units = units_of(arguments.sizes);
    if (options.peers == std::vector<std::string>{"none"}) options.peers.clear();
    options.sweep = arguments.settings == "sweep";
    options.program_folder = fs::read_symlink("/proc/self/exe").parent_path().string();
    options.progress = !arguments.json;
    const bench::AllreduceBenchResult result = bench::run_allreduce_bench(options);
    if (!arguments.plot.empty()) write_file_atomically(arguments.plot, bench::to_svg(result));
    std::cout << (arguments.json ? bench::to_json(result) + "\n" : bench::to_text(result)) << std::flush;
    for (const bench::AllreduceFailure& failure : result.failures) {
        log::warn("{}, {}, at {}: {}", failure.name, failure.setting, failure.unit, failure.reason);
    }
    if (result.rows.empty()) throw DeviceError("bench allreduce: nothing could be measured; the reasons stand above");
    return 0;
}

}  // namespace

void add_bench_allreduce(CLI::App& bench, Action& chosen) {
    CLI::App* allreduce = bench.add_subcommand("allreduce", "compare Lockstep's allreduce with those of installed libraries");
    const auto arguments = std::make_shared<AllreduceArguments>();  // shared with the callback below, which outlives this function
    bench::AllreduceBenchOptions& options = arguments->options;
    allreduce->add_option("--ranks", options.rank_count, "processes of each contestant")->capture_default_str();
    allreduce
        ->add_option("--sizes", arguments->sizes,
                     "bytes of a call, such as 4B,64KiB,1MiB,102228128; `resnet50`: its tensors and its buckets; `default`: 4B to "
                     "64MiB, 102228128 and resnet50")
        ->delimiter(',')
        ->capture_default_str();
    allreduce
        ->add_option("--peers", options.peers, "of openmpi, mpich and gloo, or `none`; those not installed are named in the output")
        ->delimiter(',')
        ->capture_default_str();
    allreduce->add_option("--settings", arguments->settings, "of the peers: `default` only, or also the best of a `sweep`")
        ->check(one_of({"default", "sweep"}))
        ->capture_default_str();
    allreduce->add_option("--lockstep-backend", options.lockstep_backends, "Lockstep's backends to show, as comm.backend")
        ->delimiter(',')
        ->check(one_of({"auto", "native", "tcp", "mpi", "gloo"}))
        ->capture_default_str();
    allreduce
        ->add_option("--algorithm", options.lockstep_algorithms,
                     "Lockstep's algorithms to show, as comm.algorithm; `fastest`: auto under run.reproducible: off")
        ->delimiter(',')
        ->capture_default_str();
    allreduce->add_option("--rounds", options.rounds, "turns of each contestant at each size")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    allreduce->add_option("--turn-ms", options.turn_ms, "about how long a turn takes; at least two calls")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    allreduce->add_option("--timeout-s", options.timeout_s, "a contestant that takes longer for a turn is out")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    allreduce->add_option("--plot", arguments->plot, "write a picture (SVG) to this file");
    allreduce->add_flag("--json", arguments->json, "print one JSON object");
    allreduce->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return bench_allreduce(*arguments); }; });
}

}  // namespace lockstep::cli
