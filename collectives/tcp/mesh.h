// How the ranks of a job get connected: every rank listens, rank 0 collects all addresses in the store (one key per rank and one
// for all together), each rank calls those below it and is called by those above. All connections are made at the same time, in
// one loop; who does not prove to belong to the job is refused with a line in the log and holds up nobody.
#pragma once

#include <string>
#include <vector>

#include "collectives/tcp/tcp_transport.h"
#include "core/world.h"
#include "net/socket.h"
#include "net/store.h"

namespace lockstep::tcp {

struct Link {
    int peer = -1;
    FileHandle socket;  // connected, proven, non-blocking
};

// Collective over all ranks. Keys lie under `prefix`. CommError naming the ranks that are missing after connect_timeout_ms, or
// what this or another rank could not do; ConfigError for an interface, a congestion control or a secret that does not fit.
std::vector<Link> connect_mesh(const World& world, Store& store, const std::string& prefix, const TcpOptions& options);

}  // namespace lockstep::tcp
