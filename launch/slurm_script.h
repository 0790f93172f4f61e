// The batch script that runs a training under Slurm. Pure.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct SlurmJob {
    std::string name = "lockstep";
    int nodes = 1;
    int ranks_per_node = 1;
    int cpus_per_rank = 0;  // 0: the site's default
    int gpus_per_node = 0;
    std::string time, partition, account;  // empty: the site's default
    std::string array;                     // such as 0-4; empty: one job
    int signal_before_end_s = 120;         // for the checkpoint, before the time limit
    bool requeue = true;                   // after preemption, and after a stop with a checkpoint
    std::vector<std::string> command;      // program and arguments of one rank
};

// ConfigError naming option and value.
std::string slurm_script(const SlurmJob& job);

// For a shell: quoted where it must be.
std::string shell_word(const std::string& text);

}  // namespace lockstep
