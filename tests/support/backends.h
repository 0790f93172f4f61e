// The backends that the executor's contract suite runs on; a new one earns its place by one line here.
#pragma once

#include <string>
#include <vector>

namespace lockstep::testing_support {

inline std::vector<std::string> backends_under_test() {
    return {
        "reference",
        "onednn",
    };
}

}  // namespace lockstep::testing_support
