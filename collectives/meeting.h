// How the ranks of a job find each other in the store before any memory or connection is shared.
#pragma once

#include <cstdint>
#include <string>

#include "core/world.h"
#include "net/store.h"

namespace lockstep {

// Waits until all ranks are here and returns the prefix for this communicator's keys, new for each communicator of the job.
// CommError naming a rank that is there twice, a world size that differs, or the ranks that are missing.
std::string meet_all_ranks(const World& world, Store& store, int64_t timeout_ms);

}  // namespace lockstep
