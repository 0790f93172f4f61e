// A failure that every rank meets at the same point with the same words: a diverged step, a checkpoint that does not fit. Only rank
// 0 needs to print it; all end with its exit code.
#pragma once

#include <string>

#include "core/error.h"

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

}  // namespace lockstep
