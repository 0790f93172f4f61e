#include "collectives/node_segment.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "collectives/segment_file.h"
#include "core/clock.h"
#include "core/error.h"
#include "net/socket.h"

namespace lockstep {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "flags in shared memory must not hide a lock");

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kPoolSlackBytes = size_t{64} << 10;  // for the alignment of several buffers

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

FileHandle obtain_file(const World& world, Store& store, const std::string& prefix, size_t total_bytes, int64_t timeout_ms) {
    if (world.rank == 0) return create_and_hand_out(world, store, prefix, total_bytes, timeout_ms);
    return receive_from_leader(world, store, prefix, total_bytes, timeout_ms);
}

}  // namespace

SegmentLayout::SegmentLayout(int rank_count, size_t pool_bytes_per_rank) {
    const auto ranks = static_cast<size_t>(rank_count);
    ranks_offset = round_up(sizeof(SegmentControl), kPageBytes);
    staging_offset = ranks_offset + round_up(ranks * sizeof(RankControl), kPageBytes);
    regions_offset = staging_offset + 2 * ranks * kStagingBytes;
    region_bytes = pool_bytes_per_rank == 0 ? 0 : round_up(pool_bytes_per_rank + kPoolSlackBytes, kPageBytes);
    total_bytes = regions_offset + ranks * region_bytes;
}

NodeSegment::NodeSegment(const World& world, Store& store, const std::string& prefix, size_t pool_bytes_per_rank,
                         int64_t timeout_ms)
    : layout_(world.size, pool_bytes_per_rank) {
    // The descriptor is closed on return: the mapping keeps the memory, and the last process to end frees it.
    const FileHandle file = obtain_file(world, store, prefix, layout_.total_bytes, timeout_ms);
    map(file.get());
    try {
        join(world, timeout_ms);
    } catch (...) {
        munmap(base_, layout_.total_bytes);
        throw;
    }
}

NodeSegment::~NodeSegment() { munmap(base_, layout_.total_bytes); }

void NodeSegment::map(int descriptor) {
    // Populated: a step takes no page fault, in the peers' regions neither.
    void* base = mmap(nullptr, layout_.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
    if (base == MAP_FAILED) {
        throw DeviceError(
            fmt::format("cannot map the node's shared segment of {} bytes: {}; use a smaller network or comm.backend=gloo",
                        layout_.total_bytes, std::strerror(errno)));
    }
    base_ = static_cast<std::byte*>(base);
}

void NodeSegment::join(const World& world, int64_t timeout_ms) {
    RankControl& mine = rank_control(world.rank);
    mine.pid = getpid();
    mine.state.store(kRankJoined, std::memory_order_release);
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    for (int peer = 0; peer < world.size; ++peer) {
        while (rank_control(peer).state.load(std::memory_order_acquire) == kRankAbsent) {
            if (deadline.expired()) {
                throw CommError(
                    fmt::format("rank {} did not enter the node's shared segment within {:.1f} s, rank {} waited; "
                                "check its output",
                                peer, 1e-3 * static_cast<double>(timeout_ms), world.rank));
            }
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    }
}

}  // namespace lockstep
