// What carries collectives out: one operation at a time, on the communication thread. QueuedCommunicator puts a queue, tickets and
// the first error around it; a backend is an Engine and nothing else.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/communicator.h"
#include "collectives/operation.h"

namespace lockstep {

class Engine {
public:
    virtual ~Engine() = default;
    virtual std::string_view name() const = 0;
    virtual MemoryPool& gradient_pool() = 0;

    // Blocks until the operation is complete on this rank. Sets times.arrived_ns where it can. Throws CommError; then this rank's
    // data is undefined, the peers have been told, and no other operation is started.
    virtual void run(const Operation& operation, WorkTimes& times) = 0;

    // From any thread: the operation that runs here and those of all peers end soon with a CommError that carries `reason`.
    virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace lockstep
