#include "tests/support/allocation_counter.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<int64_t> allocation_count{0};

// oneDNN makes a small map of the arguments whenever it executes a primitive; no interface avoids that, so it is not counted.
bool is_foreign(void* caller) {
    Dl_info info{};
    return dladdr(caller, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libdnnl") != nullptr;
}

void* counted(void* data, void* caller) {
    if (!is_foreign(caller)) allocation_count.fetch_add(1, std::memory_order_relaxed);
    if (data == nullptr) throw std::bad_alloc();
    return data;
}

// aligned_alloc wants a multiple of the alignment.
void* aligned(std::size_t bytes, std::size_t alignment, void* caller) {
    return counted(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment), caller);
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(std::malloc(bytes == 0 ? 1 : bytes), __builtin_return_address(0)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return aligned(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
// The nothrow form would call the first one, but for sanitizers, which bring their own.
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
    try {
        return counted(std::malloc(bytes == 0 ? 1 : bytes), __builtin_return_address(0));
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t /*bytes*/) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t /*alignment*/) noexcept { std::free(data); }
void operator delete(void* data, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept { std::free(data); }

namespace lockstep::testing_support {

int64_t heap_allocation_count() { return allocation_count.load(std::memory_order_relaxed); }

}  // namespace lockstep::testing_support
