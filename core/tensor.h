// Tensor borrows, Buffer owns, a MemoryPool makes Buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

enum class DataType : uint8_t { f32, bf16, f16, f64, i32, i64, u8 };
size_t bytes_per_element(DataType type);
std::string_view to_string(DataType type);

using Shape = std::vector<int64_t>;
int64_t element_count(const Shape& shape);  // 1 for a scalar (empty shape)
std::string to_string(const Shape& shape);  // "64x3x7x7"

// A borrowed, contiguous, plain (row-major) view. Valid as long as the Buffer behind it.
struct Tensor {
    void* data = nullptr;
    Shape shape;
    DataType type = DataType::f32;

    int64_t element_count() const { return lockstep::element_count(shape); }
    size_t byte_count() const { return static_cast<size_t>(element_count()) * bytes_per_element(type); }
    std::span<float> f32() const;  // checks the type
};

// Owns bytes, 64-byte aligned at least, zeroed, already touched (no page fault on first use). Move only.
class Buffer {
public:
    using Release = std::function<void(void*)>;

    Buffer() = default;
    Buffer(void* data, size_t bytes, Release release);
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer();

    void* data() const { return data_; }
    size_t byte_count() const { return bytes_; }
    std::span<float> f32() const { return {static_cast<float*>(data_), bytes_ / sizeof(float)}; }
    std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }

private:
    void* data_ = nullptr;
    size_t bytes_ = 0;
    Release release_;
};

// Makes Buffers. Called before step 0 only. Throws DeviceError naming the bytes asked for.
class MemoryPool {
public:
    virtual ~MemoryPool() = default;
    virtual Buffer allocate(size_t bytes) = 0;
};

// Ordinary private memory, page aligned, pages touched at allocation.
class HeapPool final : public MemoryPool {
public:
    Buffer allocate(size_t bytes) override;
};

}  // namespace lockstep
