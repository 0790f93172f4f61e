// Counts the heap allocations of this process: link it into a test binary and operator new is replaced for the whole program.
#pragma once

#include <cstdint>

namespace lockstep::testing_support {

int64_t heap_allocation_count();  // calls of operator new so far, from any thread, but for those inside oneDNN

}  // namespace lockstep::testing_support
