// `lockstep tune`: measures the links and schedules of a job's ranks and keeps the table that later runs choose by.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bench/tune.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "configs/experiment.h"
#include "core/error.h"
#include "trainer/common_failure.h"
#include "trainer/communication.h"

namespace lockstep::cli {

namespace {

constexpr size_t kSegmentBytes = size_t{64} << 20;  // holds all sizes that are measured

struct TuneArguments {
    std::string config;
    std::vector<std::string> overrides;
    std::string backend;
    std::string interface;
    std::string folder;
    bool json = false;
};

Experiment experiment_of(const TuneArguments& arguments) {
    Experiment experiment;
    if (!arguments.config.empty()) experiment = read_experiment(arguments.config, arguments.overrides);
    if (!arguments.backend.empty()) experiment.comm.backend = arguments.backend;
    if (!arguments.interface.empty()) experiment.comm.interface = arguments.interface;
    if (!arguments.folder.empty()) experiment.comm.tuning = arguments.folder;
    if (experiment.comm.wire != "fp32") {
        throw ConfigError(fmt::format("tune: comm.wire={} takes the fixed table, nothing is measured for it; set comm.wire=fp32",
                                      experiment.comm.wire));
    }
    return experiment;
}

// Where there is nothing to choose all ranks find that out; one says so.
bench::TuneResult measure(Communicator& communicator) {
    try {
        return in_common([&] { return bench::tune(communicator); });
    } catch (const CommonFailure& failure) {
        fail_together(communicator, failure);
    }
}

int tune(const TuneArguments& arguments) {
    const Experiment experiment = experiment_of(arguments);
    return run_job(experiment, [&](const World& world, Store& store) {
        CommunicatorOptions options = communicator_options(experiment, kSegmentBytes);
        options.plan.probing = Probing::thorough;
        options.flight_record_path.clear();
        const auto communicator = make_communicator(world, store, options);
        const bench::TuneResult result = measure(*communicator);
        if (world.is_leader()) fmt::print("{}", arguments.json ? to_json(result) + "\n" : to_text(result));
        std::fflush(stdout);
        communicator->barrier({.what = "end of tune"});
        return 0;
    });
}

}  // namespace

void add_tune(CLI::App& app, Action& chosen) {
    const auto arguments = std::make_shared<TuneArguments>();  // shared with the callback below, which outlives this function
    CLI::App* command = app.add_subcommand(
        "tune", "Measure links and schedules between the ranks and keep the table by which later runs on them choose");
    command->footer(
        "Example: lockstep run --nproc-per-node 2 -- tune --backend tcp\n"
        "A table is for these hosts, ranks and comm settings: give the CONFIG of the runs it is for where they set any of "
        "comm.backend, comm.interface, comm.algorithm and what belongs to it.");
    command->add_option("config", arguments->config, "An experiment whose comm settings are taken (YAML); none: the defaults");
    command->add_option("overrides", arguments->overrides, "key=value, on top of the experiment");
    command->add_option("--backend", arguments->backend, "comm.backend: native, tcp or mpi");
    command->add_option("--interface", arguments->interface, "comm.interface");
    command->add_option("--tuning", arguments->folder, "comm.tuning: the folder that keeps the table");
    command->add_flag("--json", arguments->json, "One JSON object on one line");
    command->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return tune(*arguments); }; });
}

}  // namespace lockstep::cli
