// How Gloo's full mesh of connections is made: which network interface, and our store behind Gloo's.
#pragma once

#include <memory>
#include <string>

#include <gloo/rendezvous/context.h>

#include "collectives/communicator.h"

namespace lockstep {

// The local address the connections are made from: of `interface`, or, when that is empty, the one that reaches the store.
// ConfigError naming the interfaces there are.
std::string choose_local_address(const World& world, const std::string& interface);

// Collective over all ranks; connected when it returns.
std::shared_ptr<gloo::rendezvous::Context> connect_mesh(const World& world, Store& store, const std::string& prefix,
                                                        const CommunicatorOptions& options);

}  // namespace lockstep
