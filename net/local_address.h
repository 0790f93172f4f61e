// Under which of its addresses a rank can be reached by the others.
#pragma once

#include <string>
#include <vector>

#include "core/world.h"

namespace lockstep {

// Numeric addresses, the best first: of `interface`, or, when that is empty, the one that reaches the store, then, in a job of
// several nodes, those of the other interfaces. Never empty: ConfigError naming the interfaces there are.
std::vector<std::string> local_addresses(const World& world, const std::string& interface);

// "localhost" and the loopback's numbers: a name that means another machine on each machine.
bool is_loopback_name(const std::string& host);

// Whether `host`, a name or an address, is (also) this machine.
bool is_own_address(const std::string& host);

}  // namespace lockstep
