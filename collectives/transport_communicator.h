// The Communicator over a Transport: schedules between all ranks; over several nodes the ranks of a node first sum in their shared
// memory, and ranks of equal place on their nodes sum over the nodes.
//
// One thread at a time drives engine and transport. That is a sleeping thread of low priority while the caller computes, and the
// caller itself while it waits: a small operation costs no change of threads. A transport that belongs to one thread is driven by
// the communicator's thread alone.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/node_sharing.h"
#include "collectives/operation.h"
#include "collectives/schedule_engine.h"
#include "collectives/shared_memory/node_memory.h"
#include "collectives/transport.h"
#include "collectives/tuner.h"

namespace lockstep {

class TransportCommunicator final : public Communicator, public NodeSharing {
public:
    struct Parts {
        std::string name;
        std::function<std::unique_ptr<Transport>()> make_transport;
        bool one_thread = false;  // the transport is made, used and destroyed by the communicator's own thread only
        // Between nodes only: makes the memory that the ranks of this node share, told how many rails there are. Empty: none.
        std::function<std::unique_ptr<NodeMemory>(int rail_count)> make_node_memory;
    };

    // Collective over all ranks. Errors as the makers'; ConfigError for plans that do not exist.
    TransportCommunicator(const World& world, const CommunicatorOptions& options, Parts parts);
    ~TransportCommunicator() override;  // waits for what has been started

    const World& world() const override { return world_; }
    std::string_view name() const override { return parts_.name; }
    MemoryPool& gradient_pool() override;
    DataType wire() const override { return options_.wire; }
    const Tuning* tuning() const override { return &tuning_; }

    using Communicator::allreduce;
    using Communicator::reduce_scatter;
    Work allreduce(std::span<std::byte> data, DataType type, CollectiveLabel label) override;
    void reduce_scatter(std::span<std::byte> data, DataType type, CollectiveLabel label) override;
    void allgather(std::span<const std::byte> mine, std::span<std::byte> all, CollectiveLabel label) override;
    void broadcast(std::span<std::byte> data, int root, CollectiveLabel label) override;
    void barrier(CollectiveLabel label) override;
    void progress() noexcept override;
    void abort(std::string_view reason) noexcept override;
    CommunicatorUsage take_usage() override;

    // With one rank on every node there is no memory of the node, and each rank owns everything.
    NodeSharing* node_sharing() override { return parts_.make_node_memory ? this : nullptr; }
    MemoryPool& common_pool() override;
    std::pair<int64_t, int64_t> node_slice(int64_t count) const override;
    Work reduce_to_slices(std::span<float> data, CollectiveLabel label) override;
    void exchange_slices(std::span<float> data, CollectiveLabel label) override;
    void node_barrier(CollectiveLabel label) override;

private:
    // Through the node: its ranks meet (all data is complete), own slice summed over the node, the rail's allreduce, own slice
    // stored on all ranks of the node unless only its owner wants it, its ranks meet again (nobody touches another's data any
    // more).
    enum class Stage : uint8_t { flat, node_arrival, rail, node_departure, delayed, done };

    struct Slot {
        Operation operation;
        ScheduleRequest request;  // flat, or the rail's
        WorkTimes times;
        Stage stage = Stage::done;
        int handle = -1;           // in the engine
        int64_t node_offset = -1;  // of data that go through the node's memory
        int64_t not_before_ns = 0;
        float meeting = 0.0F;  // what ranks that only meet add up
    };

    static constexpr size_t kSmallBytes = 64 << 10;  // up to here the caller itself sends off what it starts
    static constexpr int kWorldGroup = 0, kNodeGroup = 1, kRailGroup = 2;
    static constexpr uint64_t kNumbersPerTicket = 4;  // an operation takes up to three turns in the engine

    bool test(uint64_t ticket) override;
    void wait(uint64_t ticket) override;
    WorkTimes times(uint64_t ticket) const override;

    // The caller's side.
    // `data`: what the schedule works on, of the operation's type when it sums and bytes otherwise.
    uint64_t issue(const Operation& operation, schedule::Collective collective, std::span<std::byte> data);
    void plan(Slot& slot, schedule::Collective collective, std::span<std::byte> data);
    static schedule::Plan meeting_plan(int rank_count);  // of ranks that only meet: one number each
    Work launch(uint64_t ticket);
    void throw_if_failed(uint64_t ticket, const CollectiveLabel* label) const;  // with mutex_ held

    std::string text_for(std::string_view what, const CollectiveLabel& label, int64_t waited_ns) const;  // of a failure

    // All below: transport_communicator_driver.cc. The thread's.
    void thread_main();
    void thread_loop();

    void drive_until_finished(uint64_t ticket);  // the caller drives, or waits for the thread where it may not

    // The driver's: drive_ held, mutex_ not.
    void make_parts();
    std::vector<std::vector<int>> groups_of(std::span<const RankPlace> places) const;
    template <typename Action>
    void guarded(const Action& action);  // keeps a failure and counts processor time
    template <typename Until>
    void drive(const Until& until, int64_t spin_ns);  // waits, until `until()` or a failure
    void look_around();                               // does what can be done now
    bool step();
    bool start_issued();
    bool advance(Slot& slot);
    void enter_rail(Slot& slot);
    void meet_node(Slot& slot, Stage stage);
    void enter_end(Slot& slot);
    void collect();
    int64_t patience_ns() const;
    void fail(std::string_view what);

    Slot& slot_of(uint64_t ticket) { return slots_[ticket % kHistory]; }

    const World world_;
    const Parts parts_;
    const CommunicatorOptions options_;
    const int64_t spin_ns_;
    const int64_t idle_period_ns_;
    HeapPool heap_;

    Tuning tuning_;  // set at the start

    // Touched by the driver.
    std::mutex drive_;
    std::unique_ptr<Transport> transport_;
    std::unique_ptr<NodeMemory> node_;
    std::unique_ptr<ScheduleEngine> engine_;
    uint64_t started_ = 0;
    uint64_t collected_ = 0;  // finished_, for the driver
    int64_t delayed_until_ns_ = 0;
    bool failed_ = false;

    std::atomic<int> callers_{0};  // that drive or want to: the thread makes room for them
    std::atomic<bool> thread_drives_{false};
    std::atomic<int64_t> cpu_ns_{0};
    std::atomic<uint64_t> sent_bytes_{0};
    std::atomic<float> rounding_{0.0F};
    uint64_t reported_sent_bytes_ = 0;  // the caller's

    mutable std::mutex mutex_;
    std::condition_variable work_changed_;      // for the thread
    std::condition_variable finished_changed_;  // for callers that may not drive
    // Guarded by mutex_. A ticket is the sequence number of its operation; ticket t lies in slot t % kHistory, which is the
    // caller's until it is issued and the driver's until it is finished.
    std::array<Slot, kHistory> slots_;
    uint64_t issued_ = 0;
    uint64_t finished_ = 0;  // this one and all before it
    bool stopping_ = false;
    bool ready_ = false;  // the parts are made, or cannot be
    std::exception_ptr start_failure_;
    std::string abort_text_;         // not empty: this rank has given up
    std::string failure_;            // not empty: nothing works any more; what has happened
    std::string failure_in_flight_;  // the same as the operation met it that was under way

    std::vector<std::byte> gathered_;  // the caller's: for parts whose size is no multiple of a slice's unit
    std::thread thread_;
};

}  // namespace lockstep
