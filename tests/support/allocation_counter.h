// Counts every `operator new` of the test binary it is linked into, in all threads.
#pragma once

#include <cstdint>

namespace lockstep::testing_support {

int64_t allocation_count();

}  // namespace lockstep::testing_support
