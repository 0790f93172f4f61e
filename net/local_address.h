// Under which of its addresses a rank can be reached by the others.
#pragma once

#include <string>
#include <vector>

#include "core/world.h"

namespace lockstep {

// Numeric addresses, the best first: of `interface`, or, when that is empty, the one that reaches the store, then, in a job of
// several nodes, those of the other interfaces. Never empty: ConfigError naming the interfaces there are.
std::vector<std::string> local_addresses(const World& world, const std::string& interface);

}  // namespace lockstep
