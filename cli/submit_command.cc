// `lockstep submit slurm`: prints the batch script of a training; sbatch takes it from there.
#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "configs/experiment.h"
#include "launch/slurm_script.h"

namespace lockstep::cli {

namespace {

// A faulty configuration is told now, not after a night in the queue.
void check_training(const SlurmJob& job) {
    if (job.command.size() < 2 || job.command.front() != "train" || job.command[1].starts_with("-")) return;
    (void)read_experiment(job.command[1], {job.command.begin() + 2, job.command.end()});
}

int print_slurm(SlurmJob job, bool no_requeue, const std::string& program) {
    check_training(job);
    job.requeue = !no_requeue;
    if (!job.command.empty() && (job.command.front() == "train" || job.command.front() == "eval"))
        job.command.insert(job.command.begin(), program);
    fmt::print("{}", slurm_script(job));
    return 0;
}

}  // namespace

void add_submit(CLI::App& app, Action& chosen) {
    CLI::App* command = app.add_subcommand("submit", "Print a batch script");
    command->require_subcommand(1);
    CLI::App* slurm = command->add_subcommand("slurm", "Print a script for sbatch");
    slurm->footer("Example: lockstep submit slurm --nodes 8 --ranks-per-node 2 --time 12:00:00 -- train config.yaml | sbatch");
    const auto job = std::make_shared<SlurmJob>();
    const auto no_requeue = std::make_shared<bool>(false);
    const auto program = std::make_shared<std::string>(std::filesystem::read_symlink("/proc/self/exe").string());
    slurm->add_option("--nodes", job->nodes, "Nodes");
    slurm->add_option("--ranks-per-node", job->ranks_per_node, "Ranks on each node");
    slurm->add_option("--cpus-per-rank", job->cpus_per_rank, "Processors for each rank; default: the site's");
    slurm->add_option("--gpus-per-node", job->gpus_per_node, "GPUs on each node");
    slurm->add_option("--time", job->time, "Time limit, as Slurm writes it");
    slurm->add_option("--partition", job->partition, "Partition");
    slurm->add_option("--account", job->account, "Account");
    slurm->add_option("--array", job->array,
                      "Indices of a job array, such as 0-4; a setting takes them as ${env:SLURM_ARRAY_TASK_ID:-0}");
    slurm->add_option("--name", job->name, "Name of the job");
    slurm->add_option("--signal-before-end", job->signal_before_end_s,
                      "Seconds before the time limit at which the ranks are asked to stop");
    slurm->add_option("--program", *program, "Where the nodes find this program; default: where it is here");
    slurm->add_flag("--no-requeue", *no_requeue, "Do not go on in a new job after a stop with a checkpoint");
    slurm->add_option("command", job->command, "After --: `train CONFIG [key=value ...]`, or a program and its arguments")
        ->required();
    slurm->callback([job, no_requeue, program, &chosen] {
        chosen = [job, no_requeue, program] { return print_slurm(*job, *no_requeue, *program); };
    });
}

}  // namespace lockstep::cli
