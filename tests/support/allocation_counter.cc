#include "tests/support/allocation_counter.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

// glibc's own, under the names it exports for those who replace the public ones. (NOLINT: the names are glibc's.)
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT
void* __libc_realloc(void* data, std::size_t bytes);              // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT
}

namespace {

std::atomic<int64_t> allocation_count{0};

void count_one() { allocation_count.fetch_add(1, std::memory_order_relaxed); }

// oneDNN's matrix product takes an aligned buffer for packed operands and gives it back, in every call; no interface avoids it.
bool is_onednn(void* caller) {
    Dl_info info{};
    return dladdr(caller, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libdnnl") != nullptr;
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) noexcept {
    count_one();
    return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
    count_one();
    return __libc_calloc(count, bytes);
}
void* realloc(void* data, std::size_t bytes) noexcept {
    count_one();
    return __libc_realloc(data, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
    count_one();
    return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept { return memalign(alignment, bytes); }
int posix_memalign(void** data, std::size_t alignment, std::size_t bytes) noexcept {
    if (!is_onednn(__builtin_return_address(0))) count_one();
    void* const found = __libc_memalign(alignment, bytes);
    if (found == nullptr) return ENOMEM;
    *data = found;
    return 0;
}

}  // extern "C"

namespace lockstep::testing_support {

int64_t heap_allocation_count() { return allocation_count.load(std::memory_order_relaxed); }

}  // namespace lockstep::testing_support
