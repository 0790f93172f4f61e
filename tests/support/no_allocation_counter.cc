// For sanitizer builds, whose malloc must stay theirs.
#include "tests/support/allocation_counter.h"

namespace lockstep::testing_support {

int64_t heap_allocation_count() { return 0; }

}  // namespace lockstep::testing_support
