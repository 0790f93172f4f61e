// The collectives of a job. All ranks issue the same calls in the same order; graph and plan are static, so there is no
// negotiation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/tuning.h"
#include "core/tensor.h"
#include "core/world.h"
#include "net/store.h"

namespace lockstep {

// What an operation is for: named in errors and records.
struct CollectiveLabel {
    std::string_view what;  // static text: "bucket", "control", "evaluation"
    int64_t step = -1;
    int32_t bucket = -1;
    bool may_round = false;  // values may travel in comm.wire's type; else in their own
};

struct WorkTimes {           // now_ns; 0 where not known (yet)
    int64_t start_ns = 0;    // this rank began the operation
    int64_t arrived_ns = 0;  // last rank had arrived; 0 when the backend cannot tell
    int64_t end_ns = 0;
};

// What communication has cost this rank since it was last asked; zeros where a backend does not know.
struct CommunicatorUsage {
    double cpu_s = 0.0;          // processor time of driving transfers and of sums
    uint64_t sent_bytes = 0;     // payload
    float wire_rounding = 0.0F;  // largest error that comm.wire's type made, relative to the largest value of its operation
};

class Communicator;
class NodeSharing;

// Handle of an operation in flight. A small value: starting one allocates nothing. The data belongs to the operation until wait()
// returns. Waiting twice is allowed.
class Work {
public:
    Work() = default;
    Work(Communicator* owner, uint64_t ticket) : owner_(owner), ticket_(ticket) {}
    bool test() const;  // finished? throws CommError when it failed
    void wait() const;  // throws CommError naming peer, operation, step, bucket and how long, after comm.timeout without progress
    WorkTimes times() const;  // valid after wait, until kHistory more operations have been started

private:
    Communicator* owner_ = nullptr;
    uint64_t ticket_ = 0;
};

struct CommunicatorOptions {
    // auto | native | tcp | mpi | gloo. auto is native: shared memory inside a node, TCP between nodes, and both for an allreduce
    // over several nodes. tcp and mpi: between all ranks.
    std::string backend = "auto";
    std::string mpi = "auto";             // auto | openmpi | mpich: which MPI; auto: the one that started this process
    int64_t timeout_ms = 10'000;          // of no progress
    int64_t connect_timeout_ms = 60'000;  // for all ranks to appear; they may start at different times
    size_t segment_bytes = 0;        // bytes of gradient_pool() memory per rank to reserve (native); 0 is fine for a world of one
    size_t common_bytes = 0;         // bytes of NodeSharing::common_pool() to reserve per node (native)
    std::string interface;           // network interface for TCP; empty: the one that reaches the store
    std::string congestion_control;  // of TCP connections between ranks, "cubic"; empty: the system's default
    PlanOptions plan;                // of operations over TCP
    DataType wire = DataType::f32;   // of values that may be rounded (CollectiveLabel) over TCP: f32, bf16 or f16
    bool shared_memory = true;       // native: false is tcp
    // Native on one node: after a failure, what every rank did last, dead ranks too, is written to this file by the rank that
    // noticed it first, and the error names it. Empty: not written. Other backends cannot read a dead rank's memory.
    std::string flight_record_path;
    int64_t test_delay_ns_per_kib = 0;  // test only: artificial slowness of the transfer, for overlap and report tests
};

class Communicator {
public:
    static constexpr int kHistory = 1024;

    virtual ~Communicator() = default;  // leaves nothing behind: no segment, port or thread
    virtual const World& world() const = 0;
    virtual std::string_view name() const = 0;

    // Memory in which collectives are fastest (the node's shared segment; ordinary memory elsewhere). All ranks must allocate the
    // same sizes in the same order. Buffers die before the communicator.
    virtual MemoryPool& gradient_pool() = 0;

    // In-place sum over all ranks of f32, bf16 or f16 elements; half types are added in fp32 and rounded once. Returns at once. The
    // sum is one binary tree over the ranks (the left subtree takes the largest power of two below their number), so all ranks
    // hold the same bits, every run of this world gives the same bits, and so does every backend. One caller thread.
    //
    // Backends without a thread of their own (native) get on only inside calls: progress(), test(), wait() and the next operation.
    virtual Work allreduce(std::span<std::byte> data, DataType type, CollectiveLabel label) = 0;
    Work allreduce(std::span<float> data, CollectiveLabel label) {
        return allreduce(std::as_writable_bytes(data), DataType::f32, label);
    }

    // The synchronous calls wait for all earlier work of this rank first. Counts are equal on all ranks.
    virtual void reduce_scatter(std::span<std::byte> data, DataType type,
                                CollectiveLabel label) = 0;  // rank r's slice(r) holds the sum; others undefined
    void reduce_scatter(std::span<float> data, CollectiveLabel label) {
        reduce_scatter(std::as_writable_bytes(data), DataType::f32, label);
    }
    virtual void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                           CollectiveLabel label) = 0;  // all = size * mine
    virtual void broadcast(std::span<std::byte> data, int root, CollectiveLabel label) = 0;
    virtual void barrier(CollectiveLabel label) = 0;

    // This rank is computing and gets on: peers that wait for it do not count the time before as silence. Also does this rank's
    // share of every operation that can go on without waiting. Caller thread; call it at layer borders, at least once per
    // micro-batch. A failure met here is thrown by the next call that may throw. Backends that cannot tell their peers ignore it:
    // there comm.timeout must exceed the longest stretch between two collectives.
    virtual void progress() noexcept {}

    virtual CommunicatorUsage take_usage() { return {}; }

    // By what schedules are chosen; null where there is nothing to choose (shared memory, gloo, a world of one).
    virtual const Tuning* tuning() const { return nullptr; }

    // What the ranks of a node can do in memory that they share; null where the backend has none (tcp, mpi, gloo).
    virtual NodeSharing* node_sharing() { return nullptr; }

    // The type in which values that may be rounded travel.
    virtual DataType wire() const { return DataType::f32; }

    // Tells all peers at once that this rank gives up; their waits end with a CommError that carries `reason`. Never throws.
    virtual void abort(std::string_view reason) noexcept = 0;

    // Slice [first, second) of `count` elements that rank `rank` owns in reduce_scatter; borders on 16 elements.
    static std::pair<int64_t, int64_t> slice(int64_t count, int rank, int size);

protected:
    friend class Work;
    virtual bool test(uint64_t ticket) = 0;
    virtual void wait(uint64_t ticket) = 0;
    virtual WorkTimes times(uint64_t ticket) const = 0;
};

// Collective over all ranks of `world`, which meet through `store`. A world of one gives a no-op. Throws ConfigError for a backend
// that cannot serve this world (native over several nodes) and CommError when peers do not appear.
std::unique_ptr<Communicator> make_communicator(const World& world, Store& store, const CommunicatorOptions& options);

// Whether a failure, as the text of a CommError, is one of a rank that stands still or of ranks that do different things, so that
// it helps to see what all of them are doing: not when a rank has died, or has said why it gives up. Ranks that were told of a
// failure answer alike: what they are told is the text of the one that noticed.
bool calls_for_stacks(std::string_view failure);

// Every rank's text; on all ranks the result is indexed by rank. For agreement before step 0 (sizes may differ).
std::vector<std::string> gather_texts(Communicator& communicator, std::string_view mine, std::string_view what);

}  // namespace lockstep
