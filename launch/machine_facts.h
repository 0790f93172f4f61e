// What a rank's process finds on its machine, before anything is started: the raw material of the preflight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/world.h"

namespace lockstep {

struct PathFact {
    std::string path;
    std::string found;    // "file of 5 bytes", "folder of 10 entries": the same on all ranks or they read different data
    std::string problem;  // why it cannot be read; empty: it can
};

struct Room {  // bytes of a file system
    uint64_t total = 0, free = 0;
    std::string problem;  // why it cannot be written; empty: it can
};

struct MachineFacts {
    int rank = 0, local_rank = 0, node = 0;
    std::string launcher;
    std::string host;                    // what the machine calls itself
    std::string boot_id;                 // of the running kernel: tells machines of one name apart, and one machine under two names
    std::vector<std::string> addresses;  // under which the others reach this rank, the best first
    std::string address_problem;         // why there are none; empty: there are
    std::string program;                 // version and checksum
    std::string instruction_set;
    int allowed_cores = 1, node_cores = 1, compute_threads = 1;
    std::string thread_warning;
    uint64_t open_files = 0, open_files_limit = 0;  // soft and hard limit
    uint64_t locked_memory = 0;                     // bytes; UINT64_MAX: unlimited
    uint64_t memory = 0, memory_free = 0;           // bytes
    Room shared_memory, run_folder;
    std::vector<PathFact> data;
};

struct MachineQuestions {
    std::string interface;  // comm.interface
    int64_t threads = 0;    // train.threads
    std::string program;
    std::string run_folder;
    std::vector<std::string> data;
};

// Never throws for what it finds: a problem is a fact.
MachineFacts machine_facts(const World& world, const MachineQuestions& questions);

std::string to_json(const MachineFacts& facts);
MachineFacts facts_from_json(const std::string& text);  // throws CommError: it came from another rank

}  // namespace lockstep
