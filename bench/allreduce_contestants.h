// Who takes part in the allreduce benchmark and how each is started: a table, and the command lines made from it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/allreduce_bench.h"
#include "bench/lab_map.h"
#include "bench/turn.h"

namespace lockstep::bench {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Contestant {
    std::string name;      // lockstep, openmpi, mpich, gloo
    std::string setting;   // in words
    std::string kind;      // lockstep | default | sweep
    std::string launcher;  // openmpi | mpich: its mpirun starts the ranks; empty: the driver does
    Pairs settings;        // for the contestant's program
    std::vector<std::string> launcher_options;
    Pairs environment;
    std::string how() const;
};

// Lockstep first, then each peer's default and, with options.sweep, its forced settings.
std::vector<Contestant> contestants_for(const AllreduceBenchOptions& options);

struct Command {
    std::vector<std::string> words;
    Pairs environment;
};

// The processes that bring a contestant up: one per rank, or the launcher of an MPI, which starts the ranks itself.
std::vector<Command> commands_for(const Contestant& contestant, const ContestantPlan& plan, const LabMap& lab,
                                  const std::string& program_folder);

// Why `name` cannot take part on this machine; empty: it can.
std::string why_missing(const std::string& name, const std::string& program_folder);

}  // namespace lockstep::bench
