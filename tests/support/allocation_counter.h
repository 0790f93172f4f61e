// Counts the heap allocations of this process: link it into a test binary and malloc is replaced for the whole program, libraries
// included; left out is only the packing buffer of oneDNN's matrix products.
#pragma once

#include <cstdint>

namespace lockstep::testing_support {

int64_t heap_allocation_count();  // allocations so far, from any thread and library; always 0 in sanitizer builds

}  // namespace lockstep::testing_support
