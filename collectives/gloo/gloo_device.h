// How Gloo's full mesh of connections is made, with our store behind Gloo's.
#pragma once

#include <memory>
#include <string>

#include <gloo/rendezvous/context.h>

#include "collectives/communicator.h"

namespace lockstep {

// Collective over all ranks; connected when it returns.
std::shared_ptr<gloo::rendezvous::Context> connect_mesh(const World& world, Store& store, const std::string& prefix,
                                                        const CommunicatorOptions& options);

}  // namespace lockstep
