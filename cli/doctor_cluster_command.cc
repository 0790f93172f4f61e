// `lockstep doctor cluster`: the preflight of a job on the ranks that would run it.
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/job.h"
#include "configs/experiment.h"
#include "core/error.h"
#include "data_loader/sources/sources.h"
#include "launch/preflight.h"
#include "nn/graph.h"
#include "trainer/agreement.h"
#include "trainer/recipe.h"

namespace lockstep::cli {

namespace {

constexpr uint64_t kOtherFiles = 64;  // data, logs, checkpoint and what libraries hold open

struct ClusterArguments {
    std::string config;
    std::vector<std::string> overrides;
    double timeout_s = 10.0;
    bool json = false;
};

void add_paths(const DataSetConfig& set, std::vector<std::string>& paths) {
    if (set.is_made_up() || !set.is_given()) return;
    for (const std::string& path : expand_braces(set.path)) paths.push_back(path);
    if (!set.labels.empty()) paths.push_back(set.labels);
}

MachineQuestions questions_of(const ClusterArguments& arguments, const Experiment& experiment) {
    MachineQuestions questions{.interface = experiment.comm.interface,
                               .threads = experiment.train.threads,
                               .program = program_fingerprint(),
                               .run_folder = arguments.config.empty() ? "." : experiment.run.dir};
    if (arguments.config.empty()) return questions;
    add_paths(experiment.data.train, questions.data);
    add_paths(experiment.data.val, questions.data);
    return questions;
}

uint64_t parameter_bytes(const Experiment& experiment) {
    const int64_t classes = experiment.model.num_classes > 0 ? experiment.model.num_classes : 2;  // else known from the data only
    int64_t count = 0;
    for (const ParameterOwner& owner : backward_order(build_model(model_options(experiment, classes))))
        count += element_count(owner.spec.shape);
    return static_cast<uint64_t>(count) * sizeof(float);
}

PreflightNeeds needs_of(const ClusterArguments& arguments, const Experiment& experiment, const World& world) {
    PreflightNeeds needs{.open_files = static_cast<uint64_t>(world.size) + kOtherFiles};
    if (arguments.config.empty()) return needs;
    const uint64_t parameters = parameter_bytes(experiment);
    const bool in_segment = experiment.comm.shared_memory && experiment.comm.backend != "gloo";
    if (in_segment) needs.shared_memory_per_rank = parameters;
    // Values and momentum; one more than is kept while a new one is written, and the best.
    if (experiment.checkpoint.every) needs.run_folder = 2 * parameters * static_cast<uint64_t>(experiment.checkpoint.keep_last + 2);
    return needs;
}

int cluster(const ClusterArguments& arguments) {
    Experiment experiment;
    if (!arguments.config.empty()) experiment = read_experiment(arguments.config, arguments.overrides);
    return run_job(experiment, [&](const World& world, Store& store) {
        const Preflight preflight =
            run_preflight(world, store, questions_of(arguments, experiment), needs_of(arguments, experiment, world),
                          static_cast<int64_t>(1e3 * arguments.timeout_s));
        if (world.is_leader()) fmt::print("{}", arguments.json ? to_json(preflight) + "\n" : to_text(preflight));
        std::fflush(stdout);
        // The launcher names the rank that ended first: let that be the one with the message.
        if (!world.is_leader() && !preflight.is_fine()) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return static_cast<int>(preflight.is_fine() ? ExitCode::kDone : ExitCode::kEnvironment);
    });
}

}  // namespace

void add_doctor_cluster(CLI::App& doctor, Action& chosen) {
    const auto arguments = std::make_shared<ClusterArguments>();  // shared with the callback below, which outlives this function
    CLI::App* command = doctor.add_subcommand(
        "cluster",
        "Before a long job: do the nodes reach each other, run the same program, see the data, and have the room it needs?");
    command->footer(
        "Example: lockstep run --nproc-per-node 2 -- doctor cluster configs/imagenet_resnet50.yaml\n"
        "Works under every launcher that `train` works under. Ends with 0 when the job can start, 4 when something is in its way.");
    command->add_option("config", arguments->config, "The experiment that is to run (YAML); none: machines and links only");
    command->add_option("overrides", arguments->overrides, "key=value, on top of the experiment");
    command->add_option("--timeout", arguments->timeout_s, "Seconds to wait for a rank that has met the others and says nothing")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command->add_flag("--json", arguments->json, "One JSON object on one line");
    command->parse_complete_callback([arguments, &chosen] { chosen = [arguments] { return cluster(*arguments); }; });
}

}  // namespace lockstep::cli
