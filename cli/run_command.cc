// `lockstep run`: the launcher. Validates a training's configuration once, before any rank starts.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/check_experiment.h"
#include "cli/commands.h"
#include "configs/experiment.h"
#include "core/error.h"
#include "launch/agent.h"
#include "trainer/checkpoint.h"

namespace lockstep::cli {

namespace {

// This very program, so that ranks run the same build.
std::string own_path() {
    std::error_code error;
    const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) throw DeviceError("cannot read /proc/self/exe; check that /proc is mounted");
    return path.string();
}

// The ranks' configuration error, once and within a second instead of once per rank. Warnings are left to rank 0.
void check_training(const AgentOptions& options) {
    if (options.command.size() < 2 || options.command[1].starts_with("-")) return;
    const std::vector<std::string> overrides(options.command.begin() + 2, options.command.end());
    for (const std::string& text : overrides) {
        if (text == "-h" || text == "--help") return;  // the ranks print it
        if (text.starts_with("-")) {
            throw ConfigError(fmt::format("train {}: {} is no option; settings are written key=value (docs/config.md)",
                                          options.command[1], text));
        }
    }
    const Experiment experiment = read_experiment(options.command[1], overrides);
    check_model(experiment);
    check_world(experiment, options.node_count * options.nproc_per_node);
}

void check_evaluation(const AgentOptions& options) {
    if (options.command.size() < 2 || options.command[1].starts_with("-")) return;
    (void)open_checkpoint(options.command[1]);
}

int run(AgentOptions options) {
    if (options.command.empty()) return run_agent(options);
    if (options.command.front() == "train") check_training(options);
    if (options.command.front() == "eval") check_evaluation(options);
    constexpr std::string_view kOwn[] = {"train", "eval", "tune", "bench", "doctor"};
    if (std::find(std::begin(kOwn), std::end(kOwn), options.command.front()) != std::end(kOwn)) {
        options.command.insert(options.command.begin(), own_path());
    }
    return run_agent(options);
}

}  // namespace

void add_run(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<AgentOptions>();
    CLI::App* command = app.add_subcommand("run", "Start the ranks of this node, watch them and end them together");
    command->footer("Example: lockstep run --nproc-per-node 2 -- train configs/quickstart.yaml run.seed=7");
    command->add_option("--nproc-per-node,--nproc_per_node", options->nproc_per_node, "Ranks on this node")
        ->envname("PET_NPROC_PER_NODE");
    command->add_option("--nnodes", options->node_count, "Nodes; start this command once on each")->envname("PET_NNODES");
    command->add_option("--node-rank,--node_rank", options->node_rank, "Number of this node, from 0")->envname("PET_NODE_RANK");
    command->add_option("--master-addr,--master_addr", options->master_addr, "Address of node 0")->envname("PET_MASTER_ADDR");
    command
        ->add_option("--master-port,--master_port", options->master_port,
                     "Port of the store on node 0; 0: a free one (one node only)")
        ->envname("PET_MASTER_PORT");
    command->add_option("--grace", options->grace_s,
                        "Seconds between a rank's failure and TERM, and between TERM and KILL, for the others");
    command->add_option("--log-dir,--log_dir", options->log_dir, "Keep each rank's output in LOG_DIR/RANK/{stdout,stderr}.log");
    command
        ->add_option("command", options->command,
                     "After --: `train CONFIG [key=value ...]`, `eval RUN ...`, `tune`, or a program and its arguments")
        ->required();
    command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace lockstep::cli
