// Where every rank listens, and the secret they share: through the store, before any connection exists.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/tcp/tcp_transport.h"
#include "core/world.h"
#include "net/store.h"

namespace lockstep::tcp {

struct Endpoint {
    std::string host;  // numeric
    int port = 0;
};

struct AddressBook {
    std::vector<std::vector<Endpoint>> endpoints;  // by rank
    std::string secret;
};

// Collective. `listen` is called with the host to listen on (empty: all) and returns the port. Rank 0 collects the ranks' entries
// and publishes them as one, so each rank reads one key. A rank that fails before tells so in its entry, and all end with its
// reason.
AddressBook exchange_addresses(const World& world, Store& store, const std::string& prefix, const TcpOptions& options,
                               const std::function<int(const std::string& host)>& listen);

// options.peers, or all other ranks. ConfigError for a rank that is not another one of this world.
std::vector<int> peers_of(const World& world, const TcpOptions& options);

std::string available_congestion_controls();  // of this kernel, "bbr cubic"

}  // namespace lockstep::tcp
