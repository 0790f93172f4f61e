// Floats between two pages that nobody may touch: a kernel that reads or writes behind them ends the test at once, whatever lies on
// the heap. They begin at a multiple of 64 bytes, so up to 15 floats behind the last are not noticed.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lockstep::testing_support {

class FencedFloats {
public:
    FencedFloats() = default;
    explicit FencedFloats(size_t count, float value = 0.0F) : FencedFloats(std::vector<float>(count, value)) {}
    explicit FencedFloats(const std::vector<float>& values) : count_(values.size()) {
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        const size_t line_bytes = (count_ * sizeof(float) + 63) / 64 * 64;
        const size_t inner_bytes = (line_bytes + page - 1) / page * page;
        mapped_bytes_ = inner_bytes + 2 * page;
        void* mapped = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(mapped != MAP_FAILED, "memory for a test");
        mapped_ = static_cast<std::byte*>(mapped);
        check(inner_bytes == 0 || mprotect(mapped_ + page, inner_bytes, PROT_READ | PROT_WRITE) == 0, "memory for a test");
        data_ = reinterpret_cast<float*>(mapped_ + page + inner_bytes - line_bytes);
        std::ranges::copy(values, data_);
    }
    FencedFloats(const FencedFloats&) = delete;
    FencedFloats& operator=(const FencedFloats&) = delete;
    FencedFloats(FencedFloats&& other) noexcept { swap(other); }
    FencedFloats& operator=(FencedFloats&& other) noexcept {
        swap(other);
        return *this;
    }
    ~FencedFloats() {
        if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
    }

    size_t size() const { return count_; }
    float* data() { return data_; }
    const float* data() const { return data_; }
    float& operator[](size_t place) { return data_[place]; }
    const float& operator[](size_t place) const { return data_[place]; }
    std::vector<float> values() const { return {data_, data_ + count_}; }

private:
    void swap(FencedFloats& other) {
        std::swap(count_, other.count_);
        std::swap(mapped_bytes_, other.mapped_bytes_);
        std::swap(mapped_, other.mapped_);
        std::swap(data_, other.data_);
    }

    size_t count_ = 0, mapped_bytes_ = 0;
    std::byte* mapped_ = nullptr;
    float* data_ = nullptr;
};

}  // namespace lockstep::testing_support
