#include "nn/onednn/call_memory.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>

namespace lockstep::onednn {

namespace {

constexpr size_t kSlotBytes = 256;
constexpr size_t kWords = 4;
constexpr size_t kSlots = 64 * kWords;  // a call takes about ten

alignas(64) std::array<std::byte, kSlots * kSlotBytes> block;
std::array<std::atomic<uint64_t>, kWords> taken;  // a bit per slot
thread_local int scopes = 0;

void* take_slot() noexcept {
    for (size_t word = 0; word < kWords; ++word) {
        uint64_t bits = taken[word].load(std::memory_order_relaxed);
        while (~bits != 0) {
            const int free_bit = std::countr_one(bits);
            if (taken[word].compare_exchange_weak(bits, bits | (uint64_t{1} << free_bit), std::memory_order_acquire)) {
                return block.data() + (64 * word + static_cast<size_t>(free_bit)) * kSlotBytes;
            }
        }
    }
    return nullptr;
}

bool give_back_slot(void* data) noexcept {
    auto* const byte = static_cast<std::byte*>(data);
    const std::less<const std::byte*> before;  // defined for unrelated pointers, too
    if (before(byte, block.data()) || !before(byte, block.data() + block.size())) return false;
    const size_t slot = static_cast<size_t>(byte - block.data()) / kSlotBytes;
    taken[slot / 64].fetch_and(~(uint64_t{1} << (slot % 64)), std::memory_order_release);
    return true;
}

void* allocate(std::size_t bytes) {
    if (scopes > 0 && bytes <= kSlotBytes) {
        if (void* const slot = take_slot(); slot != nullptr) return slot;
    }
    void* const data = std::malloc(bytes == 0 ? 1 : bytes);
    if (data == nullptr) throw std::bad_alloc();
    return data;
}

void release(void* data) noexcept {
    if (!give_back_slot(data)) std::free(data);
}

}  // namespace

CallMemoryScope::CallMemoryScope() { ++scopes; }
CallMemoryScope::~CallMemoryScope() { --scopes; }

}  // namespace lockstep::onednn

// Replace the global ones. Forms for arrays and without exceptions call these; the aligned forms stay the standard library's.
void* operator new(std::size_t bytes) { return lockstep::onednn::allocate(bytes); }
void operator delete(void* data) noexcept { lockstep::onednn::release(data); }
void operator delete(void* data, std::size_t /*bytes*/) noexcept { lockstep::onednn::release(data); }
