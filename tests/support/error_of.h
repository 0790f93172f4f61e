// What an action complains of.
#pragma once

#include <functional>
#include <string>

#include "core/error.h"

namespace lockstep::testing_support {

// The text of the Kind that `action` throws; "no error" when it returns. Errors of other kinds go on to the test's runner.
template <typename Kind = Error>
std::string error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Kind& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace lockstep::testing_support
