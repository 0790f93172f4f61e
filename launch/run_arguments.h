// The command line of `lockstep run` as the user wrote it, in torchrun's words, and what it means.
#pragma once

#include <string>
#include <vector>

#include "launch/agent.h"

namespace lockstep {

struct RunArguments {
    std::string nnodes = "1";          // N or MIN:MAX
    std::string nproc_per_node = "1";  // N, cpu, gpu, auto
    int node_rank = -1;
    std::string master_addr;
    int master_port = 0;
    std::string rdzv_backend;   // static, tcp, c10d (the same as tcp)
    std::string rdzv_endpoint;  // HOST[:PORT]
    std::string rdzv_id;
    std::string rdzv_conf;  // KEY=VALUE,...
    bool standalone = false;
    int max_restarts = 0;
    double monitor_interval_s = 0.1;
    std::string role, log_dir;
    std::string redirects = "0", tee = "0";  // 0 to 3, or LOCAL_RANK:VALUE,...
    std::string local_ranks_filter;          // LOCAL_RANK,...
    std::string local_addr, numa_binding;
    double grace_s = 30;
    std::string signals_to_handle;  // SIGTERM,...
    bool no_python = false, module = false;
    std::vector<std::string> command;
};

// What the machine has, for nproc_per_node.
struct ProcessorCounts {
    int cores = 1;  // allowed to this process
    int gpus = 0;
};
ProcessorCounts count_processors();

// ConfigError naming the option, its value and what is allowed; also for an option that cannot be honoured. Pure.
AgentOptions read_run_arguments(const RunArguments& arguments, const ProcessorCounts& here);

}  // namespace lockstep
