// `lockstep run`: the launcher. Validates a training's configuration once, before any rank starts.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
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
#include "launch/run_arguments.h"
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
    // How many ranks other nodes have, and which batch a run that goes on will have, only its ranks can tell.
    if (options.max_nodes == 1 && !experiment.elastic.scales()) check_world(experiment, options.nproc_per_node);
}

void check_evaluation(const AgentOptions& options) {
    if (options.command.size() < 2 || options.command[1].starts_with("-")) return;
    (void)open_checkpoint(options.command[1]);
}

int run(const RunArguments& arguments) {
    AgentOptions options = read_run_arguments(arguments, count_processors());
    if (options.command.empty()) return run_agent(options);
    if (options.command.front() == "train") check_training(options);
    if (options.command.front() == "eval") check_evaluation(options);
    constexpr std::string_view kOwn[] = {"train", "eval", "tune", "bench", "doctor"};
    options.own_program = std::find(std::begin(kOwn), std::end(kOwn), options.command.front()) != std::end(kOwn);
    if (options.own_program) options.command.insert(options.command.begin(), own_path());
    return run_agent(options);
}

// One option with torchrun's two spellings and its variable: --rdzv-conf, --rdzv_conf, PET_RDZV_CONF.
class Options {
public:
    explicit Options(CLI::App* command) : command_(command) {}

    template <typename Value>
    void add(const std::string& name, Value& value, const std::string& text, const std::string& letter = "") {
        command_->add_option(spellings(name, letter), value, text)->envname(variable(name));
    }
    void add_flag(const std::string& name, bool& value, const std::string& text, const std::string& letter = "") {
        command_->add_flag(spellings(name, letter), value, text)->envname(variable(name));
    }

private:
    static std::string underscored(std::string name) {
        std::replace(name.begin(), name.end(), '-', '_');
        return name;
    }
    static std::string spellings(const std::string& name, const std::string& letter) {
        std::string all = letter.empty() ? "--" + name : fmt::format("-{},--{}", letter, name);
        if (underscored(name) != name) all += ",--" + underscored(name);
        return all;
    }
    static std::string variable(const std::string& name) {
        std::string upper = "PET_" + underscored(name);
        std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char each) { return std::toupper(each); });
        return upper;
    }

    CLI::App* command_;
};

}  // namespace

void add_run(CLI::App& app, Action& chosen) {
    auto arguments = std::make_shared<RunArguments>();
    CLI::App* command = app.add_subcommand("run", "Start the ranks of this node, watch them, and end or restart them together");
    command->footer(
        "Example: lockstep run --nproc-per-node 2 -- train configs/quickstart.yaml run.seed=7\n"
        "On each of 4 nodes: lockstep run --nnodes 4 --rdzv-endpoint node0:29400 --nproc-per-node auto --max-restarts 3 -- train "
        "...\n"
        "Every option has a default in the environment: PET_NNODES for --nnodes, and so on (docs/running.md).");
    Options options(command);
    options.add("nnodes", arguments->nnodes, "Nodes, N or MIN:MAX; start this command once on each");
    options.add("nproc-per-node", arguments->nproc_per_node, "Ranks on this node: a number, cpu, gpu or auto");
    options.add("node-rank", arguments->node_rank, "Number of this node, from 0");
    options.add("master-addr", arguments->master_addr, "Address of node 0");
    options.add("master-port", arguments->master_port, "Port of the store on node 0 (29500); on one node 0: a free one");
    options.add("rdzv-backend", arguments->rdzv_backend,
                "static (node 0 serves), or tcp, also called c10d (who the endpoint names)");
    options.add("rdzv-endpoint", arguments->rdzv_endpoint, "HOST[:29400] where the launchers meet, the same on all nodes");
    options.add("rdzv-id", arguments->rdzv_id, "Name of the run, the same on all nodes");
    options.add("rdzv-conf", arguments->rdzv_conf,
                "join_timeout=S,last_call_timeout=S,close_timeout=S,keep_alive_interval=S,keep_alive_max_attempt=N,is_host=BOOL");
    options.add_flag("standalone", arguments->standalone, "One node, a free port, --rdzv-id and --rdzv-endpoint ignored");
    options.add("max-restarts", arguments->max_restarts, "How often all ranks are started again after a failure");
    options.add("monitor-interval", arguments->monitor_interval_s, "Seconds between two looks at the ranks when nothing happens");
    options.add("role", arguments->role, "Before the rank's number on the screen, and in ROLE_NAME");
    options.add("log-dir", arguments->log_dir, "Keep each rank's output in LOG_DIR/RUN/ROUND/RANK/{stdout,stderr}.log");
    options.add("redirects", arguments->redirects,
                "Streams that go to files only: 1 output, 2 errors, 3 both; or LOCAL_RANK:VALUE,...", "r");
    options.add("tee", arguments->tee, "Streams that go to files and to the screen, written likewise", "t");
    options.add("local-ranks-filter", arguments->local_ranks_filter, "LOCAL_RANK,... whose output the screen shows");
    options.add("local-addr", arguments->local_addr, "Address of this node as the others reach it");
    options.add("numa-binding", arguments->numa_binding, "Bind each rank to cores: node, socket, core-complex or exclusive");
    options.add("grace", arguments->grace_s, "Seconds between a signal to the ranks and KILL");
    options.add("signals-to-handle", arguments->signals_to_handle,
                "Signals that are passed on to the ranks, such as SIGTERM,SIGINT");
    options.add_flag("no-python", arguments->no_python, "The command is a program even if its name ends in .py");
    options.add_flag("module", arguments->module, "The command is a Python module", "m");
    command
        ->add_option("command", arguments->command,
                     "After --: `train CONFIG [key=value ...]`, `eval RUN ...`, `tune`, or a program and its arguments")
        ->required();
    command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace lockstep::cli
