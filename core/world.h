// Who this process is among the processes of the job. Plain data: `launch` fills it from the environment, everyone reads it.
#pragma once

#include <string>

namespace lockstep {

struct World {
    int rank = 0;  // 0 .. size-1 over all nodes
    int size = 1;
    int local_rank = 0;  // 0 .. local_size-1 on this node
    int local_size = 1;
    int node = 0;  // 0 .. node_count-1
    int node_count = 1;
    std::string store_host = "127.0.0.1";  // where the key/value store listens
    int store_port = 0;
    std::string job_id;    // equal on all ranks of a job, different between jobs; workers of another job are refused
    std::string launcher;  // who set this up: "lockstep", "torchrun", "openmpi", "slurm", "single", ...

    bool is_leader() const { return rank == 0; }
};

}  // namespace lockstep
