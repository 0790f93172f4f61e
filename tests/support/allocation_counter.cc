#include "tests/support/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocation_count{0};

void* counted(void* data) {
    allocation_count.fetch_add(1, std::memory_order_relaxed);
    if (data == nullptr) throw std::bad_alloc();
    return data;
}

// aligned_alloc wants a multiple of the alignment.
void* aligned(std::size_t bytes, std::size_t alignment) {
    return counted(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(std::malloc(bytes == 0 ? 1 : bytes)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return aligned(bytes, static_cast<std::size_t>(alignment)); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t /*bytes*/) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t /*alignment*/) noexcept { std::free(data); }
void operator delete(void* data, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept { std::free(data); }

namespace lockstep::testing {

int64_t heap_allocation_count() { return allocation_count.load(std::memory_order_relaxed); }

}  // namespace lockstep::testing
