#include "collectives/shared_memory/node_segment.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "collectives/shared_memory/segment_file.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "flags in shared memory must not hide a lock");

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPoolSlackBytes = size_t{64} << 10;  // for the alignment of several buffers

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Makes all pages present and writable, or returns why not: never a bus error later. The first to do so decides on which NUMA node
// they lie.
int touch(std::byte* start, size_t bytes) {
    madvise(start, bytes, MADV_HUGEPAGE);  // a wish: the kernel may be set up without
    int error = EINTR;
    while (error == EINTR || error == EAGAIN) error = madvise(start, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
    return error;
}

[[noreturn]] void throw_no_memory(int rank, size_t bytes, const char* reason) {
    throw DeviceError(
        fmt::format("rank {} cannot have its {} bytes of the node's shared segment: {}; use fewer ranks on this node, a smaller "
                    "network or comm.backend=gloo",
                    rank, bytes, reason));
}

}  // namespace

SegmentLayout::SegmentLayout(int ranks, const SegmentRequest& request) : rank_count(ranks) {
    check(ranks >= 1 && ranks <= SegmentControl::kMostRanks, "more ranks on a node than the segment is made for");
    const size_t most_bytes = std::max(request.pool_bytes_per_rank, request.common_bytes);
    const size_t unit = most_bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
    const auto with_slack = [](size_t bytes) { return bytes == 0 ? 0 : round_up(bytes + kPoolSlackBytes, kPageBytes); };
    common_offset = round_up(sizeof(SegmentControl), unit);
    common_bytes = with_slack(request.common_bytes);
    blocks_offset = common_offset + round_up(common_bytes, unit);
    region_offset = round_up(sizeof(RankBlock), unit);
    region_bytes = with_slack(request.pool_bytes_per_rank);
    block_bytes = region_offset + round_up(region_bytes, unit);
    total_bytes = blocks_offset + static_cast<size_t>(ranks) * block_bytes;
}

std::shared_ptr<NodeSegment> NodeSegment::open(const World& world, Store& store, const std::string& prefix,
                                               const SegmentRequest& request, int64_t timeout_ms) {
    const SegmentLayout layout(world.local_size, request);
    // The descriptor is closed on return: the mapping keeps the memory, and the last process to end frees it.
    const FileHandle file = world.local_rank == 0 ? create_and_hand_out(world, store, prefix, layout.total_bytes, timeout_ms)
                                                  : receive_from_leader(world, store, prefix, layout.total_bytes, timeout_ms);
    return std::make_shared<NodeSegment>(layout, file);
}

NodeSegment::NodeSegment(const SegmentLayout& layout, const FileHandle& file)
    : layout_(layout), reserved_bytes_(layout.total_bytes + kHugePageBytes) {
    const auto refuse = [&](int error) {
        throw DeviceError(
            fmt::format("cannot map the node's shared segment of {} bytes: {}; use a smaller network or comm.backend=gloo",
                        layout_.total_bytes, std::strerror(error)));
    };
    // Huge pages need an address that is a multiple of their size.
    void* const space = mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) refuse(errno);
    reserved_ = static_cast<std::byte*>(space);
    base_ = reserved_ + (round_up(reinterpret_cast<uintptr_t>(space), kHugePageBytes) - reinterpret_cast<uintptr_t>(space));
    if (mmap(base_, layout_.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED) {
        const int error = errno;
        munmap(reserved_, reserved_bytes_);
        refuse(error);
    }
}

NodeSegment::~NodeSegment() { munmap(reserved_, reserved_bytes_); }

// 0 or the reason why not.
int NodeSegment::touch_own_memory(int local_rank) const {
    if (const int error = touch(block_start(local_rank), layout_.block_bytes)) return error;
    const size_t part_bytes = round_up(common_bytes() / static_cast<size_t>(rank_count()) + 1, kPageBytes);
    const size_t start = std::min(common_bytes(), part_bytes * static_cast<size_t>(local_rank));
    const size_t bytes = std::min(common_bytes() - start, part_bytes);
    return bytes == 0 ? 0 : touch(common() + start, bytes);
}

void NodeSegment::join(const World& world, int64_t timeout_ms) {
    SegmentControl::Rank& mine = control().ranks[world.local_rank];
    const int error = touch_own_memory(world.local_rank);
    if (error != 0) {
        mine.state.store(kRankWithoutMemory, std::memory_order_release);
        throw_no_memory(world.rank, layout_.block_bytes, std::strerror(error));
    }
    cpu_set_t& cores = block(world.local_rank).cores;
    CPU_ZERO(&cores);
    sched_getaffinity(0, sizeof cores, &cores);  // an empty set, where the kernel refuses, means: assume shared cores
    mine.pid.store(getpid(), std::memory_order_relaxed);
    mine.state.store(kRankJoined, std::memory_order_release);
    await_all(world, timeout_ms);
    // The peers' pages are there; this fills the own page table, so that no step faults.
    touch(base_, layout_.total_bytes);
}

void NodeSegment::await_all(const World& world, int64_t timeout_ms) {
    const Deadline deadline = Deadline::after_ms(timeout_ms);
    const int first_rank = world.rank - world.local_rank;
    for (int peer = 0; peer < rank_count(); ++peer) {
        const std::atomic<uint32_t>& state = control().ranks[peer].state;
        while (state.load(std::memory_order_acquire) == kRankAbsent) {
            if (deadline.expired()) {
                throw CommError(
                    fmt::format("rank {} did not enter the node's shared segment within {:.1f} s, rank {} waited; "
                                "check its output",
                                first_rank + peer, 1e-3 * static_cast<double>(timeout_ms), world.rank));
            }
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        if (state.load(std::memory_order_acquire) == kRankWithoutMemory) {
            throw_no_memory(first_rank + peer, layout_.block_bytes, "the kernel refused them");
        }
    }
}

}  // namespace lockstep
