// Collectives over TCP through Gloo's pairs. Gloo moves the bytes; who sends what, the sums in rank order, deadlines and errors are
// ours, so the bits equal those of the native backend.
#pragma once

#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "collectives/engine.h"

namespace lockstep {

// Collective over all ranks. ConfigError for an interface that does not exist (naming those that do), CommError when the ranks
// cannot connect.
std::unique_ptr<Engine> make_gloo_engine(const World& world, Store& store, const std::string& prefix,
                                         const CommunicatorOptions& options);

}  // namespace lockstep
