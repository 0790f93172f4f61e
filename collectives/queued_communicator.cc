#include "collectives/queued_communicator.h"

#include <csignal>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

QueuedCommunicator::QueuedCommunicator(const World& world, std::unique_ptr<Engine> engine)
    : world_(world), engine_(std::move(engine)) {
    // Signals are the program's business: the thread inherits a mask that blocks them all, and with them SIGPIPE.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { work(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

QueuedCommunicator::~QueuedCommunicator() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    issued_changed_.notify_all();
    thread_.join();
}

void QueuedCommunicator::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        issued_changed_.wait(lock, [&] { return stopping_ || issued_ > finished_; });
        if (issued_ == finished_) return;
        run_next(lock);
    }
}

void QueuedCommunicator::run_next(std::unique_lock<std::mutex>& lock) {
    // The caller may fill other slots meanwhile, never this one: it is not reused before it is finished.
    Slot& slot = slots_[(finished_ + 1) % kHistory];
    std::exception_ptr failure = failure_;
    lock.unlock();
    slot.times.start_ns = now_ns();
    if (failure == nullptr) {
        try {
            engine_->run(slot.operation, slot.times);
        } catch (...) {
            failure = std::current_exception();
        }
    }
    slot.times.end_ns = now_ns();
    lock.lock();
    ++finished_;
    if (failure != nullptr && failure_ == nullptr) {
        failure_ = failure;
        failed_ticket_ = finished_;
    }
    finished_changed_.notify_all();
}

uint64_t QueuedCommunicator::start(Operation operation) {
    std::unique_lock lock(mutex_);
    throw_if_failed(std::numeric_limits<uint64_t>::max());
    finished_changed_.wait(lock, [&] { return issued_ - finished_ < kHistory; });
    const uint64_t ticket = issued_ + 1;
    operation.sequence = ticket;
    slots_[ticket % kHistory] = {operation, {}};
    issued_ = ticket;
    lock.unlock();
    issued_changed_.notify_one();
    return ticket;
}

void QueuedCommunicator::throw_if_failed(uint64_t ticket) const {
    if (failure_ != nullptr && ticket >= failed_ticket_) std::rethrow_exception(failure_);
}

bool QueuedCommunicator::test(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    if (finished_ < ticket) return false;
    throw_if_failed(ticket);
    return true;
}

void QueuedCommunicator::wait(uint64_t ticket) {
    std::unique_lock lock(mutex_);
    // Ends without a deadline of its own: the engine's waits have one.
    finished_changed_.wait(lock, [&] { return finished_ >= ticket; });
    throw_if_failed(ticket);
}

WorkTimes QueuedCommunicator::times(uint64_t ticket) const {
    const std::lock_guard lock(mutex_);
    check(ticket <= finished_ && ticket + kHistory > issued_, "times are kept for the last kHistory finished operations");
    return slots_[ticket % kHistory].times;
}

Work QueuedCommunicator::allreduce(std::span<std::byte> data, DataType type, CollectiveLabel label) {
    return {this, start(allreduce_of(data, type, label))};
}

void QueuedCommunicator::reduce_scatter(std::span<std::byte> data, DataType type, CollectiveLabel label) {
    wait(start(reduce_scatter_of(data, type, label)));
}

void QueuedCommunicator::allgather(std::span<const std::byte> mine, std::span<std::byte> all, CollectiveLabel label) {
    wait(start(allgather_of(mine, all, world_.size, label)));
}

void QueuedCommunicator::broadcast(std::span<std::byte> data, int root, CollectiveLabel label) {
    wait(start(broadcast_of(data, root, world_.size, label)));
}

void QueuedCommunicator::barrier(CollectiveLabel label) { wait(start(barrier_of(label))); }

void QueuedCommunicator::abort(std::string_view reason) noexcept {
    engine_->abort(reason);
    try {
        const std::lock_guard lock(mutex_);
        if (failure_ != nullptr) return;
        failure_ = std::make_exception_ptr(CommError(fmt::format("rank {} gave up: {}", world_.rank, reason)));
        failed_ticket_ = finished_ + 1;
    } catch (...) {
        // Out of memory: the engine knows, so the next operation fails there.
    }
}

}  // namespace lockstep
