// A failure that every rank meets at the same point with the same words: a diverged step, a checkpoint that does not fit. Only rank
// 0 needs to print it; all end with its exit code.
#pragma once

#include <string>

#include "collectives/communicator.h"
#include "core/error.h"
#include "core/world.h"
#include "net/store.h"

namespace lockstep {

class CommonFailure final : public Error {
public:
    using Error::Error;
};

// Runs what all ranks do alike; its errors are common failures.
template <typename Function>
auto in_common(Function&& function) {
    try {
        return function();
    } catch (const CommError&) {
        throw;
    } catch (const Error& error) {
        throw CommonFailure(error.exit_code(), error.what());
    }
}

// Collective among ranks that fail alike: makes sure that all do, with the same words, and that nobody leaves while a peer still
// waits for it. Rethrows the failure, or, when it is this rank's alone, tells the peers and throws it as an ordinary Error.
[[noreturn]] void fail_together(Communicator& communicator, const CommonFailure& failure);

// The same before there is a communicator. Waits a second for the peers to say so too: they do the same work at the same time.
[[noreturn]] void fail_together(Store& store, const World& world, const CommonFailure& failure);

// What all ranks do alike before they are connected, such as opening the data: an error of all is told once.
template <typename Function>
auto in_common(Store& store, const World& world, Function&& function) {
    try {
        return in_common(function);
    } catch (const CommonFailure& failure) {
        fail_together(store, world, failure);
    }
}

}  // namespace lockstep
