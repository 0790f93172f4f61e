#include "launch/slurm_script.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace lockstep {

namespace {

void require(bool fine, const std::string& text) {
    if (!fine) throw ConfigError(text);
}

void check_job(const SlurmJob& job) {
    require(job.nodes >= 1, fmt::format("--nodes {}: allowed: at least 1", job.nodes));
    require(job.ranks_per_node >= 1, fmt::format("--ranks-per-node {}: allowed: at least 1", job.ranks_per_node));
    require(job.cpus_per_rank >= 0, fmt::format("--cpus-per-rank {}: allowed: at least 1", job.cpus_per_rank));
    require(job.gpus_per_node >= 0, fmt::format("--gpus-per-node {}: allowed: at least 1", job.gpus_per_node));
    require(job.signal_before_end_s >= 10 && job.signal_before_end_s <= 65'535,  // Slurm's own limit
            fmt::format("--signal-before-end {}: allowed: 10 to 65535 s", job.signal_before_end_s));
    require(!job.command.empty(), "nothing to run; write the command after --, such as `-- train CONFIG`");
    for (const std::string& value : {job.name, job.time, job.partition, job.account, job.array}) {
        require(std::ranges::none_of(value, [](unsigned char each) { return std::isspace(each) || std::iscntrl(each); }),
                fmt::format("\"{}\": a value of Slurm's options has no blanks", value));
    }
}

}  // namespace

std::string shell_word(const std::string& text) {
    const bool plain = !text.empty() && std::ranges::all_of(text, [](unsigned char each) {
        return std::isalnum(each) || std::string_view("-_./=:,+@%").find(static_cast<char>(each)) != std::string_view::npos;
    });
    if (plain) return text;
    std::string quoted = "'";
    for (const char each : text) quoted += each == '\'' ? "'\\''" : std::string(1, each);
    return quoted + "'";
}

std::string slurm_script(const SlurmJob& job) {
    check_job(job);
    std::string text = "#!/bin/bash\n";
    const auto option = [&text](const std::string& line) { text += fmt::format("#SBATCH --{}\n", line); };
    option("job-name=" + job.name);
    option(fmt::format("nodes={}", job.nodes));
    option(fmt::format("ntasks-per-node={}", job.ranks_per_node));
    if (job.cpus_per_rank > 0) option(fmt::format("cpus-per-task={}", job.cpus_per_rank));
    if (job.gpus_per_node > 0) option(fmt::format("gpus-per-node={}", job.gpus_per_node));
    if (!job.time.empty()) option("time=" + job.time);
    if (!job.partition.empty()) option("partition=" + job.partition);
    if (!job.account.empty()) option("account=" + job.account);
    if (!job.array.empty()) option("array=" + job.array);
    option(fmt::format("output={}-{}.out", job.name, job.array.empty() ? "%j" : "%A_%a"));
    option("open-mode=append");
    // Without "B:" the signal goes to the ranks: they make a checkpoint, stop at the same step and end with 138.
    option(fmt::format("signal=USR1@{}", job.signal_before_end_s));
    option(job.requeue ? "requeue" : "no-requeue");
    std::vector<std::string> words;
    for (const std::string& word : job.command) words.push_back(shell_word(word));
    text += fmt::format("\nsrun {}{}\ncode=$?\n",
                        job.cpus_per_rank > 0 ? fmt::format("--cpus-per-task={} ", job.cpus_per_rank) : "", fmt::join(words, " "));
    if (job.requeue) text += "[ $code -ne 138 ] || scontrol requeue \"$SLURM_JOB_ID\"  # stopped after a checkpoint: go on later\n";
    return text + "exit $code\n";
}

}  // namespace lockstep
