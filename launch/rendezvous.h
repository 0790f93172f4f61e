// The ranks of a job find each other: the store is served and every rank has checked in.
#pragma once

#include <cstdint>
#include <memory>

#include "core/world.h"
#include "net/store.h"

namespace lockstep {

// The server lives on rank 0, unless the launcher serves the store. It must outlive every rank's use of the store: keep the
// Rendezvous until the last collective has ended. Its end leaves the other ranks half a second for what they still ask, so that a
// fault which all ranks find in the store is not hidden by rank 0's leaving first.
struct Rendezvous {
    Rendezvous() = default;
    Rendezvous(Rendezvous&&) = default;
    Rendezvous& operator=(Rendezvous&&) = default;
    ~Rendezvous();

    std::unique_ptr<StoreServer> server;
    std::unique_ptr<Store> store;
};

// Ports tried in order, from World::store_port, when it is taken by something else: another job, another program.
inline constexpr int kPortCandidates = 8;

// Collective over all ranks of `world`; a world of one gets a store of its own. Blocks until all ranks are there, at most
// `timeout_ms`. Throws ConfigError for a doubled rank or unequal world sizes, naming both processes or numbers, and CommError
// naming the missing ranks. The store's hello carries World::job_id, so ranks of another job are never met.
Rendezvous meet(const World& world, int64_t timeout_ms);

// Tells the launcher, if it serves the store, that all ranks are connected and at work: from now on they notice by themselves when
// a peer has gone, and may have work to bring to safety. Before that the launcher ends them at once when one has failed.
void announce_work(Store& store);
inline constexpr const char* kAtWorkKey = "rendezvous/at_work";

}  // namespace lockstep
