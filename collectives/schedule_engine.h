// Carries out collectives as schedules over a Transport: several in flight, started by all ranks in the same order, each moving on
// as its bytes arrive. One thread at a time. Nothing is allocated for an operation of a kind that has run before.
//
// The first frame between two ranks in every operation is its signature, so ranks whose plans differ stop with an error that names
// both sides instead of summing the wrong numbers. Small operations are more urgent than large ones: a tail bucket overtakes those
// before it wherever the transport can put its bytes between theirs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/operation.h"
#include "collectives/program_run.h"
#include "collectives/schedule/schedule.h"
#include "collectives/transport.h"

namespace lockstep {

// The same on all ranks of the operation. Fixed size, trivially copyable: travels as it is.
struct ScheduleSignature {
    OperationSignature operation;
    schedule::Plan plan;
    DataType wire = DataType::f32;
    uint64_t hash = 0;  // of all the above
};

struct ScheduleRequest {
    uint64_t number = 0;  // unique among the engine's operations, equal on all their ranks
    OperationSignature operation;
    schedule::Plan plan;
    ElementFormat format;
    std::byte* data = nullptr;
    int64_t element_count = 0;
    int32_t group = 0;    // which of the engine's groups of ranks takes part
    bool stable = false;  // data at this address come again and again: prepared programs are kept for the address
};

struct EngineOptions {
    size_t eager_bytes = size_t{256} << 10;       // per operation and peer, sent unasked
    size_t eager_window_bytes = size_t{1} << 20;  // of all operations in flight; bounds what a slower peer has to keep for later
    int64_t sum_budget = int64_t{64} << 10;       // elements summed before the transport is looked at again
};

class ScheduleEngine {
public:
    static constexpr int kMaxInFlight = 64;
    static constexpr size_t kMostIdleKept = 64;  // prepared programs for addresses that may never come again
    // What a transport must be able to keep for receives that are not posted yet, per peer.
    static size_t unexpected_bytes_bound(const EngineOptions& options) { return 4 * options.eager_window_bytes; }

    // `groups`: for each group the world's ranks in it, this rank among them.
    ScheduleEngine(Transport& transport, int rank, std::vector<std::vector<int>> groups, const EngineOptions& options);
    ~ScheduleEngine();

    // Allocates what the request will need; start() of an equal request then allocates nothing.
    void prepare(const ScheduleRequest& request);

    bool can_start() const;  // false while too much is in flight: advance, and release what is finished
    // Posts what can be posted. Returns a handle for finished() and release().
    int start(const ScheduleRequest& request);
    // Does what has become possible since the transport moved bytes. True when something has. Throws CommError when ranks disagree.
    bool advance();
    bool finished(int handle) const;
    int64_t arrived_ns(int handle) const;  // when the last rank that this one exchanges data with had arrived; 0: not yet
    void release(int handle);              // of a finished operation

    bool idle() const { return active_.empty(); }
    size_t prepared_count() const { return prepared_.size(); }  // programs kept, in use or not
    // The ranks still awaited by the oldest operation in flight disagree? Throws what advance() would have thrown. For use after
    // the transport has thrown: a message of unexpected length is explained by it.
    void throw_if_mismatched();

    float take_rounding();                               // largest relative error of wire types since the last call
    uint64_t sent_bytes() const { return sent_bytes_; }  // payload

private:
    struct Flight;

    Flight& obtain(const ScheduleRequest& request);
    void evict_idle();
    void post_signatures(Flight& flight, uint64_t number);
    void verify_signatures(Flight& flight);
    void finish(Flight& flight);

    Transport& transport_;
    const int rank_;
    const std::vector<std::vector<int>> groups_;
    const EngineOptions options_;
    std::vector<std::unique_ptr<Flight>> prepared_;  // in use and idle
    std::vector<Flight*> active_;                    // most urgent first, then in order of start
    std::vector<Flight*> by_handle_;                 // kMaxInFlight; null: free
    size_t eager_in_flight_ = 0;
    uint64_t clock_ = 0;  // counts starts, for eviction
    wire_kernels::Rounding rounding_;
    uint64_t sent_bytes_ = 0;
};

}  // namespace lockstep
