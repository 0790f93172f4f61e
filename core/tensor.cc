#include "core/tensor.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace lockstep {

size_t bytes_per_element(DataType type) {
    switch (type) {
        case DataType::f64:
        case DataType::i64:
            return 8;
        case DataType::f32:
        case DataType::i32:
            return 4;
        case DataType::bf16:
        case DataType::f16:
            return 2;
        case DataType::u8:
            return 1;
    }
    check(false, "unknown data type");
    return 0;
}

std::string_view to_string(DataType type) {
    switch (type) {
        case DataType::f32:
            return "f32";
        case DataType::bf16:
            return "bf16";
        case DataType::f16:
            return "f16";
        case DataType::f64:
            return "f64";
        case DataType::i32:
            return "i32";
        case DataType::i64:
            return "i64";
        case DataType::u8:
            return "u8";
    }
    return "?";
}

int64_t element_count(const Shape& shape) {
    int64_t count = 1;
    for (const int64_t dimension : shape) count *= dimension;
    return count;
}

std::string to_string(const Shape& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

std::span<float> Tensor::f32() const {
    check(type == DataType::f32, "tensor is not f32");
    return {static_cast<float*>(data), static_cast<size_t>(element_count())};
}

Buffer::Buffer(void* data, size_t bytes, Release release) : data_(data), bytes_(bytes), release_(std::move(release)) {}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      release_(std::exchange(other.release_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
}

Buffer::~Buffer() {
    if (release_) release_(data_);
}

Buffer HeapPool::allocate(size_t bytes) {
    const size_t mapped_bytes = bytes == 0 ? 64 : bytes;
    void* data = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        throw DeviceError(
            fmt::format("cannot allocate {} bytes of memory ({}); use a smaller batch or network", bytes, std::strerror(errno)));
    }
    // Huge pages must be asked for before the first touch; touching now keeps page faults out of the steps.
    madvise(data, mapped_bytes, MADV_HUGEPAGE);
    std::memset(data, 0, mapped_bytes);
    return {data, bytes, [mapped_bytes](void* pointer) { munmap(pointer, mapped_bytes); }};
}

}  // namespace lockstep
