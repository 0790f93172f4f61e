// Collectives of the ranks of one node, through their shared segment. No thread: the caller's own calls carry everything out.
//
// Operations run in order of issue, and three counts say how far this rank is with them:
//
//   issued >= announced >= shared >= finished
//
// announced: the peers can see that this rank has come to it; shared: all ranks had come to it and this rank has done its share;
// finished: its data belongs to the caller again, which on the direct path needs every rank's share. A rank that has done its
// share holds up nobody, and nobody does another's share.
#pragma once

#include <array>
#include <exception>
#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "collectives/node_sharing.h"
#include "collectives/operation.h"
#include "collectives/shared_memory/local_group.h"
#include "collectives/shared_memory/segment_pool.h"
#include "collectives/shared_memory/segment_transfer.h"

namespace lockstep {

class NativeCommunicator final : public Communicator, public NodeSharing {
public:
    // Collective over the ranks of `world`'s node, which share `segment`: joins it. Errors as NodeSegment's.
    NativeCommunicator(const World& world, std::shared_ptr<NodeSegment> segment, const CommunicatorOptions& options);
    ~NativeCommunicator() override;  // finishes what has been started, if it can

    const World& world() const override { return world_; }
    std::string_view name() const override { return "native"; }
    MemoryPool& gradient_pool() override { return pool_; }

    using Communicator::allreduce;
    using Communicator::reduce_scatter;
    Work allreduce(std::span<std::byte> data, DataType type, CollectiveLabel label) override;
    void reduce_scatter(std::span<std::byte> data, DataType type, CollectiveLabel label) override;
    void allgather(std::span<const std::byte> mine, std::span<std::byte> all, CollectiveLabel label) override;
    void broadcast(std::span<std::byte> data, int root, CollectiveLabel label) override;
    void barrier(CollectiveLabel label) override;
    void progress() noexcept override;

    // For schedules over several nodes, which reduce between these two: a reduce_scatter that returns at once, and the delivery of
    // every rank's slice of `data` to all ranks, in place. With a world of several nodes this communicator is the node's: slices
    // and roots count local ranks.
    Work start_reduce_scatter(std::span<std::byte> data, DataType type, CollectiveLabel label);
    Work start_allgather_slices(std::span<std::byte> data, DataType type, CollectiveLabel label);
    void abort(std::string_view reason) noexcept override { group_.abort(reason); }

    NodeSharing* node_sharing() override { return this; }
    MemoryPool& common_pool() override { return common_pool_; }
    std::pair<int64_t, int64_t> node_slice(int64_t count) const override { return slice(count, group_.rank(), group_.size()); }
    Work reduce_to_slices(std::span<float> data, CollectiveLabel label) override;
    void exchange_slices(std::span<float> data, CollectiveLabel label) override;
    void node_barrier(CollectiveLabel label) override { barrier(label); }

private:
    // Of one operation; by ticket, which is its sequence.
    struct Flight {
        Operation operation;
        SegmentPath path = SegmentPath::inlined;
        int64_t place = -1;
        uint64_t plan_hash = 0;
        int64_t start_ns = 0;
        int64_t shared_ns = 0;
        int64_t not_before_ns = 0;  // of the artificial delay; 0: not known yet
    };

    bool test(uint64_t ticket) override;
    void wait(uint64_t ticket) override;
    WorkTimes times(uint64_t ticket) const override;

    uint64_t issue(Operation operation);
    void advance();  // everything that can be done without waiting
    bool announce_next();
    bool share_next();
    bool finish_next();
    bool delay_has_passed(Flight& flight);
    int64_t arrival_ns(uint64_t ticket) const;
    void wait_for(uint64_t ticket);
    uint64_t steps() const { return finished_ + shared_ + group_.phase(); }  // grows with every step of this rank
    void look();
    [[noreturn]] void keep_failure();  // in a catch block: every later call meets it
    Flight& flight(uint64_t ticket) { return flights_[ticket % kHistory]; }
    const Flight& flight(uint64_t ticket) const { return flights_[ticket % kHistory]; }

    const World world_;
    const int64_t delay_ns_per_kib_;
    LocalGroup group_;
    SegmentPool pool_;
    CommonPool common_pool_;
    SegmentTransfer transfer_;
    const SegmentPathLimits limits_;
    std::array<Flight, kHistory> flights_;
    uint64_t issued_ = 0;
    uint64_t announced_ = 0;
    uint64_t shared_ = 0;
    uint64_t finished_ = 0;
    int64_t link_free_ns_ = 0;  // when the artificially slow transfer before is over
    std::exception_ptr failure_;
};

// Collective over all ranks, which are all on one node.
std::unique_ptr<Communicator> make_native_communicator(const World& world, Store& store, const std::string& prefix,
                                                       const CommunicatorOptions& options);

}  // namespace lockstep
