// The few hundred bytes that the library asks of `operator new` in every call (a map of the primitive's arguments; no interface
// avoids it) come from a fixed block instead of the heap, so that a step allocates nothing.
#pragma once

namespace lockstep::onednn {

// While one lives, small `new`s of this thread are served from the block, as long as it has room. What they return may be deleted
// by any thread, also after the scope.
class CallMemoryScope {
public:
    CallMemoryScope();
    CallMemoryScope(const CallMemoryScope&) = delete;
    CallMemoryScope& operator=(const CallMemoryScope&) = delete;
    ~CallMemoryScope();
};

}  // namespace lockstep::onednn
