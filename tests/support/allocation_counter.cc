#include "tests/support/allocation_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> count{0};

void* counted_allocation(std::size_t bytes, std::size_t alignment) {
    count.fetch_add(1, std::memory_order_relaxed);
    const std::size_t rounded_bytes = (bytes + alignment) / alignment * alignment;
    void* pointer =
        alignment <= alignof(std::max_align_t) ? std::malloc(rounded_bytes) : std::aligned_alloc(alignment, rounded_bytes);
    if (pointer == nullptr) throw std::bad_alloc();
    return pointer;
}

}  // namespace

// The array forms call these. The nothrow form does, too, but for sanitizers, which bring their own.
void* operator new(std::size_t bytes) { return counted_allocation(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return counted_allocation(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    try {
        return counted_allocation(bytes, alignof(std::max_align_t));
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { std::free(pointer); }

namespace lockstep::testing_support {

int64_t allocation_count() { return count.load(); }

}  // namespace lockstep::testing_support
