// `lockstep doctor cluster`: what would keep a job from starting, or slow it down, found out in seconds on the ranks that would run
// it. Needs the store only: no rank allocates, reads data or opens a communicator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/world.h"
#include "launch/machine_facts.h"
#include "launch/reachability.h"
#include "net/store.h"

namespace lockstep {

// What the job will ask of each machine, in bytes and files; 0: not known or not needed.
struct PreflightNeeds {
    uint64_t shared_memory_per_rank = 0;
    uint64_t run_folder = 0;  // on rank 0's: its checkpoints
    uint64_t open_files = 0;  // of each rank
};

struct PreflightFinding {
    bool is_error = false;  // else a warning: the job runs, though slower or with a risk
    std::string text;       // what, where, what next
};

struct Preflight {
    std::vector<MachineFacts> ranks;         // by rank
    std::vector<NodePair> pairs;             // each node to each other one
    std::vector<PreflightFinding> findings;  // errors first
    double seconds = 0.0;

    bool is_fine() const { return findings.empty() || !findings.front().is_error; }
};

// Pure.
std::vector<PreflightFinding> find_problems(const std::vector<MachineFacts>& ranks, const std::vector<NodePair>& pairs,
                                            const PreflightNeeds& needs);

// Collective over the ranks that have met in `store`. Rank 0 returns all that was found, the others what rank 0 found wrong and
// nothing else. CommError when a rank says nothing for `timeout_ms`.
Preflight run_preflight(const World& world, Store& store, const MachineQuestions& questions, const PreflightNeeds& needs,
                        int64_t timeout_ms);

std::string to_text(const Preflight& preflight);  // for people
std::string to_json(const Preflight& preflight);  // one object on one line

}  // namespace lockstep
