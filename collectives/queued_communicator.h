// The Communicator around an Engine: a ring of prepared slots, one communication thread that takes them in order of issue, and the
// first error, which every later call meets. Starting an operation allocates nothing.
#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/communicator.h"
#include "collectives/engine.h"
#include "collectives/operation.h"

namespace lockstep {

class QueuedCommunicator final : public Communicator {
public:
    QueuedCommunicator(const World& world, std::unique_ptr<Engine> engine);
    ~QueuedCommunicator() override;  // waits for what has been started

    const World& world() const override { return world_; }
    std::string_view name() const override { return engine_->name(); }
    MemoryPool& gradient_pool() override { return engine_->gradient_pool(); }

    using Communicator::allreduce;
    using Communicator::reduce_scatter;
    Work allreduce(std::span<std::byte> data, DataType type, CollectiveLabel label) override;
    void reduce_scatter(std::span<std::byte> data, DataType type, CollectiveLabel label) override;
    void allgather(std::span<const std::byte> mine, std::span<std::byte> all, CollectiveLabel label) override;
    void broadcast(std::span<std::byte> data, int root, CollectiveLabel label) override;
    void barrier(CollectiveLabel label) override;
    void abort(std::string_view reason) noexcept override;

private:
    struct Slot {
        Operation operation;
        WorkTimes times;
    };

    bool test(uint64_t ticket) override;
    void wait(uint64_t ticket) override;
    WorkTimes times(uint64_t ticket) const override;

    uint64_t start(Operation operation);  // returns the ticket; waits while the ring is full
    void work();                          // the communication thread
    void run_next(std::unique_lock<std::mutex>& lock);
    void throw_if_failed(uint64_t ticket) const;  // with the mutex held

    const World world_;
    const std::unique_ptr<Engine> engine_;
    mutable std::mutex mutex_;
    std::condition_variable issued_changed_;
    std::condition_variable finished_changed_;
    // Guarded by mutex_. A ticket is the sequence number of its operation; ticket t lies in slot t % kHistory.
    std::array<Slot, kHistory> slots_;
    uint64_t issued_ = 0;
    uint64_t finished_ = 0;
    bool stopping_ = false;
    std::exception_ptr failure_;
    uint64_t failed_ticket_ = 0;  // the first that did not succeed; valid when failure_ is set
    std::thread thread_;
};

}  // namespace lockstep
