#include "collectives/shared_memory/segment_pool.h"

#include <cstring>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

constexpr size_t kAlignment = 128;  // two cache lines: neighbours share none

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Buffer SegmentPool::allocate(size_t bytes) {
    if (live_buffers_ == 0) used_bytes_ = 0;
    const size_t left_bytes = region_bytes_ - used_bytes_;
    if (bytes > left_bytes) {
        throw DeviceError(
            fmt::format("the shared gradient memory has {} of {} bytes left per rank, {} are asked for; reserve more when "
                        "the communicator is made",
                        left_bytes, region_bytes_, bytes));
    }
    std::byte* data = region_ + used_bytes_;
    std::memset(data, 0, bytes);
    used_bytes_ = std::min(region_bytes_, used_bytes_ + aligned(bytes));
    ++live_buffers_;
    return {data, bytes, [this](void*) { --live_buffers_; }};
}

Buffer CommonPool::allocate(size_t bytes) {
    const size_t left_bytes = bytes_ - used_bytes_;
    if (bytes > left_bytes) {
        throw DeviceError(
            fmt::format("the node's common memory has {} of {} bytes left, {} are asked for; reserve more when the "
                        "communicator is made",
                        left_bytes, bytes_, bytes));
    }
    std::byte* const data = start_ + used_bytes_;
    used_bytes_ = std::min(bytes_, used_bytes_ + aligned(bytes));
    return {data, bytes, nullptr};
}

int64_t SegmentPool::offset_of(const void* data, size_t bytes) const {
    const auto* start = static_cast<const std::byte*>(data);
    if (std::less<>()(start, region_) || std::less<>()(region_ + region_bytes_, start + bytes)) return -1;
    return start - region_;
}

}  // namespace lockstep
