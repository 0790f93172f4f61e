// One collective as a request. Plain data; the memory it points to belongs to the operation until it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "collectives/communicator.h"

namespace lockstep {

// allgather_slices: in place, every rank's Communicator::slice of the data reaches all ranks (the other half of a reduce_scatter).
enum class OperationKind : uint8_t { allreduce = 1, reduce_scatter, allgather, broadcast, barrier, allgather_slices };
std::string_view to_string(OperationKind kind);

struct Operation {
    OperationKind kind = OperationKind::barrier;
    DataType type = DataType::f32;  // of the elements that are summed or sliced
    CollectiveLabel label;
    std::byte* target = nullptr;        // allgather: byte_count * world size; else in place
    const std::byte* source = nullptr;  // allgather: `byte_count` bytes of this rank
    size_t byte_count = 0;              // of this rank's data
    int root = 0;                       // broadcast
    bool in_node = false;               // reduce_scatter: over the slices of the node's ranks; barrier: of the node's ranks
    uint64_t sequence = 0;              // 1, 2, 3, ... equal on all ranks

    bool sums() const { return kind == OperationKind::allreduce || kind == OperationKind::reduce_scatter; }
    bool has_elements() const { return sums() || kind == OperationKind::allgather_slices; }
    size_t element_count() const { return byte_count / bytes_per_element(type); }
};

// The requests behind Communicator's calls; they check what the caller passes. Types that are summed: f32, bf16, f16.
Operation allreduce_of(std::span<std::byte> data, DataType type, CollectiveLabel label);
Operation reduce_scatter_of(std::span<std::byte> data, DataType type, CollectiveLabel label);
Operation allgather_slices_of(std::span<std::byte> data, DataType type, CollectiveLabel label);
Operation allgather_of(std::span<const std::byte> mine, std::span<std::byte> all, int world_size, CollectiveLabel label);
Operation broadcast_of(std::span<std::byte> data, int root, int world_size, CollectiveLabel label);
Operation barrier_of(CollectiveLabel label);

// The same on all ranks or the job is broken: compared at every operation, so that ranks whose plans differ stop instead of hanging
// or summing the wrong numbers. Fixed size, no padding: lies in shared memory and travels as it is.
struct OperationSignature {
    uint64_t sequence = 0;
    uint64_t byte_count = 0;
    int64_t place = -1;  // native: offset in the rank's region of the segment; -1: outside
    int64_t step = -1;
    int32_t bucket = -1;
    uint16_t root = 0;
    OperationKind kind = OperationKind::barrier;
    DataType type = DataType::f32;
    char what[24] = {};
    uint64_t plan_hash = 0;  // of all the above: one comparison on the fast path

    static OperationSignature of(const Operation& operation, int64_t place);
};
static_assert(sizeof(OperationSignature) == 72, "no padding: its bytes are hashed");

std::string describe(const OperationSignature& signature);  // "allreduce of 4096 bytes (f32) for bucket 3 of step 17"
std::string describe(const CollectiveLabel& label);         // "bucket 3 of step 17"

// The text of every failure of a wait, three parts: `fault` (who did what), where this rank was, what to do.
std::string failure_text(std::string_view fault, int rank, const CollectiveLabel& label, int64_t waited_ns);
std::string mismatch_text(int rank, const OperationSignature& mine, int peer, const OperationSignature& theirs);

}  // namespace lockstep
