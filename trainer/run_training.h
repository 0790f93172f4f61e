// `lockstep train` behind the command line: makes every part, agrees with the other ranks, runs the loop, writes the report.
#pragma once

#include <string>

#include "configs/experiment.h"
#include "core/error.h"
#include "core/world.h"
#include "net/store.h"
#include "trainer/train_loop.h"

namespace lockstep {

struct TrainingJob {
    const Experiment& experiment;
    const World& world;
    Store& store;         // where the ranks meet
    std::string command;  // for the report's head
    bool again = false;   // a later start of one job: after a failure, a change of nodes, a requeue
    StepObserver* observer = nullptr;
};

// Collective over all ranks of the world. Before an exception leaves, the peers are told, so that they end at once. Binds this
// process to its cores and sets the size of its thread pool.
ExitCode run_training(const TrainingJob& job);

}  // namespace lockstep
