// Transport over TCP: one non-blocking connection per peer, one epoll loop, no thread of its own. So the owner calls progress()
// also when nothing is posted (it may sleep in it): heartbeats, aborts and what comes from the peers are dealt with only there.
// Plan on at least one call per heartbeat.
//
// Silence. While a transfer with a peer is posted, the peer must get on: bytes move, or its heartbeats say that it has noted
// progress, or that a peer it waits for itself has. A peer from which nothing comes at all is given up after timeout_ms, one that
// waits itself a little later, so that the rank nearest to the cause names it and the others hear of it.
//
// Security. The handshake proves that both sides know the job's secret; see handshake.h. What follows is neither encrypted nor
// signed: who can alter packets between the nodes can alter gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/transport.h"
#include "core/world.h"
#include "net/store.h"

namespace lockstep {

struct TcpOptions {
    int64_t timeout_ms = 10'000;             // of no progress
    int64_t connect_timeout_ms = 60'000;     // for all ranks to connect
    int64_t heartbeat_ms = 1000;             // at most; a quarter of timeout_ms when that is less
    std::string interface;                   // network interface; empty: the one that reaches the store
    std::string congestion_control;          // TCP_CONGESTION; empty: the system's default
    size_t chunk_bytes = size_t{256} << 10;  // of a large message between two looks for a more urgent one
    size_t kept_bytes = size_t{4} << 20;     // per peer, of messages that come before their receive is posted
    std::vector<int> peers;                  // ranks to connect to, the relation symmetric; empty: all others
    // Equal on all ranks, as job_secret_from_environment() of net/secrets.h gives it. Empty on all: rank 0 makes one up and puts it
    // into the store; then who can read the store can join.
    std::string secret;
};

// Collective over all ranks of `world`; connected when it returns. `prefix`: of this transport's keys in the store, equal on all
// ranks and new for each transport. Errors as connect_mesh of collectives/tcp/mesh.h; DeviceError for too few open files.
std::unique_ptr<Transport> make_tcp_transport(const World& world, Store& store, const std::string& prefix,
                                              const TcpOptions& options);

}  // namespace lockstep
