// For sanitizer builds, which bring an `operator new` of their own.
#include "nn/onednn/call_memory.h"

namespace lockstep::onednn {

CallMemoryScope::CallMemoryScope() = default;
CallMemoryScope::~CallMemoryScope() = default;

}  // namespace lockstep::onednn
