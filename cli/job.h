// What `train` and `eval` share: who this rank is, where it meets the others, and how errors leave.
#pragma once

#include <functional>

#include "configs/experiment.h"
#include "core/world.h"
#include "net/store.h"

namespace lockstep::cli {

// Finds out the world, sets up the log, meets the other ranks and runs `work` on each; returns its exit code. An error that all
// ranks share is thrown on rank 0 only, so that it is printed once; the others return its exit code.
int run_job(const Experiment& experiment, const std::function<int(const World&, Store&)>& work);

}  // namespace lockstep::cli
