// One rank of one library in the allreduce benchmark: the same loop for all. The process sleeps on its control socket between
// turns, so those whose turn it is have the machine to themselves.
//
// In a turn, per call: every rank rewrites its whole buffer with new values, all meet at the start line, the call is timed, and
// every element of the result is compared with the exact sum (the values are small integers, so any order of summation is exact).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "bench/turn.h"
#include "core/world.h"

namespace lockstep::bench {

using TensorViews = std::span<const std::span<float>>;

class Allreducer {
public:
    virtual ~Allreducer() = default;
    virtual std::string version() const = 0;
    virtual std::span<float> buffer() = 0;       // plan.buffer_count floats, where the library likes gradients to be
    virtual void prepare(TensorViews unit) = 0;  // before a turn; the views stay valid through it. Collective, not timed
    virtual void allreduce() = 0;                // sums every tensor of the unit over all ranks, in place; returns when done
};

// The plan from the command line. Throws ConfigError when the program was started by hand.
ContestantPlan read_plan(int argc, char** argv);

// This process's rank: the plan's, else what the MPI that launched it says in the environment, before MPI begins.
int rank_of(const ContestantPlan& plan);

// Binds this process to the cores of `rank`, if the plan says so. Before the library starts its threads.
void bind_to_cores(const ContestantPlan& plan, int rank);

World world_of(const ContestantPlan& plan, int rank);

// Takes turns until the driver hangs up. Throws DeviceError when the driver cannot be reached.
void take_turns(const ContestantPlan& plan, int rank, Allreducer& library);

// What `main` of a contestant's program does: runs `body`, prints an error in one line, returns the exit code.
int run_contestant(int argc, char** argv, int (*body)(const ContestantPlan& plan));

}  // namespace lockstep::bench
