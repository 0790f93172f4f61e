// How a TransportCommunicator's engine and transport are driven: by its thread while the caller computes, by the caller while it
// waits.
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "collectives/transport_communicator.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

constexpr int64_t kPatienceNs = 100'000'000;  // wake() and arriving bytes end a wait before
constexpr int kNicer = 5;                     // the thread yields to those that compute

int64_t thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

schedule::Plan TransportCommunicator::meeting_plan(int rank_count) {
    return {.collective = schedule::Collective::allreduce,
            .algorithm = schedule::Algorithm::exchange,
            .radix = std::clamp(rank_count, 2, 8)};
}

void TransportCommunicator::make_parts() {
    transport_ = parts_.make_transport();
    Tuner tuner(*transport_, world_, options_, parts_.name);
    engine_ = std::make_unique<ScheduleEngine>(*transport_, world_.rank, groups_of(tuner.places()), EngineOptions{});
    if (parts_.make_node_memory) {
        int rail_count = world_.local_size;
        int most_local_ranks = 1;
        for (const RankPlace& place : tuner.places()) {
            rail_count = std::min(rail_count, place.local_size);
            most_local_ranks = std::max(most_local_ranks, place.local_size);
        }
        if (most_local_ranks > 1) node_ = parts_.make_node_memory(rail_count);
    }
    tuning_ = tuner.agree(node_ != nullptr);
}

// All ranks, those of this node, and those of this rank's rail.
std::vector<std::vector<int>> TransportCommunicator::groups_of(std::span<const RankPlace> places) const {
    std::vector<std::vector<int>> groups(3);
    for (const RankPlace& place : places) {
        groups[kWorldGroup].push_back(place.rank);
        if (place.node == world_.node) groups[kNodeGroup].push_back(place.rank);
        if (place.local_rank == world_.local_rank) groups[kRailGroup].push_back(place.rank);
    }
    return groups;
}

// ---- the caller that waits ----

void TransportCommunicator::drive_until_finished(uint64_t ticket) {
    if (parts_.one_thread) {
        if (thread_drives_) transport_->wake();
        work_changed_.notify_one();
        std::unique_lock lock(mutex_);
        finished_changed_.wait(lock, [&] { return finished_ >= ticket || !failure_.empty(); });
        return throw_if_failed(ticket, nullptr);
    }
    ++callers_;
    const bool small = slot_of(ticket).operation.byte_count <= kSmallBytes;
    if (thread_drives_) transport_->wake();
    {
        const std::lock_guard driving(drive_);
        drive([&] { return collected_ >= ticket; }, small ? spin_ns_ : 0);
    }
    --callers_;
    const std::lock_guard lock(mutex_);
    if (issued_ > finished_) work_changed_.notify_one();
    throw_if_failed(ticket, nullptr);
}

// ---- the thread ----

void TransportCommunicator::thread_main() {
    const auto self = static_cast<id_t>(gettid());
    setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + kNicer);
    try {
        if (parts_.one_thread) make_parts();
    } catch (...) {
        start_failure_ = std::current_exception();
    }
    {
        const std::lock_guard lock(mutex_);
        ready_ = true;
    }
    finished_changed_.notify_all();
    if (start_failure_ == nullptr) thread_loop();
    if (!parts_.one_thread) return;
    engine_.reset();
    transport_.reset();
}

// Drives while there is something to do and no caller does it; else looks around now and then, so that a transport answers its
// peers and a dead one is noticed while this rank computes.
void TransportCommunicator::thread_loop() {
    std::unique_lock lock(mutex_);
    while (true) {
        const auto has_work = [&] { return failure_.empty() && callers_ == 0 && (issued_ > finished_ || !abort_text_.empty()); };
        work_changed_.wait_for(lock, std::chrono::nanoseconds(idle_period_ns_), [&] { return stopping_ || has_work(); });
        if (stopping_ && (issued_ == finished_ || !failure_.empty())) return;
        if (!failure_.empty() || callers_ > 0) {
            if (stopping_) return;
            continue;
        }
        const bool is_idle = issued_ == finished_;
        lock.unlock();
        {
            const std::lock_guard driving(drive_);
            thread_drives_ = true;
            if (is_idle) {
                look_around();
            } else {
                drive(
                    [&] {
                        const std::lock_guard reading(mutex_);
                        return callers_ > 0 || issued_ == collected_;
                    },
                    0);
            }
            thread_drives_ = false;
        }
        lock.lock();
    }
}

// ---- the driver ----

template <typename Action>
void TransportCommunicator::guarded(const Action& action) {
    if (failed_) return;
    const int64_t start_cpu_ns = thread_cpu_ns();
    try {
        action();
    } catch (const std::exception& error) {
        fail(error.what());
    }
    cpu_ns_ += thread_cpu_ns() - start_cpu_ns;
}

// Sleeping and waking cost more than a small message: for `spin_ns` after the last progress the driver only yields.
template <typename Until>
void TransportCommunicator::drive(const Until& until, int64_t spin_ns) {
    guarded([&] {
        int64_t spin_end_ns = 0;
        while (true) {
            const bool got_on = step();
            if (until()) return;
            if (spin_ns > 0 && (got_on || spin_end_ns == 0)) spin_end_ns = now_ns() + spin_ns;
            const bool spins = spin_ns > 0 && now_ns() < spin_end_ns;
            const bool moved = transport_->progress(got_on || spins ? 0 : patience_ns());
            if (spins && !moved && !got_on) sched_yield();
        }
    });
}

void TransportCommunicator::look_around() {
    guarded([&] {
        step();
        if (transport_->progress(0)) step();
    });
}

bool TransportCommunicator::step() {
    bool got_on = start_issued();
    got_on = engine_->advance() || got_on;
    for (uint64_t ticket = collected_ + 1; ticket <= started_; ++ticket) got_on = advance(slot_of(ticket)) || got_on;
    collect();
    return got_on;
}

bool TransportCommunicator::start_issued() {
    uint64_t issued = 0;
    {
        const std::lock_guard lock(mutex_);
        issued = issued_;
    }
    bool got_on = false;
    for (; started_ < issued && engine_->can_start(); got_on = true) {
        Slot& slot = slot_of(++started_);
        slot.times.start_ns = now_ns();
        if (slot.node_offset >= 0) {
            meet_node(slot, Stage::node_arrival);
        } else {
            slot.stage = Stage::flat;
            slot.handle = engine_->start(slot.request);
        }
    }
    return got_on;
}

bool TransportCommunicator::advance(Slot& slot) {
    if (slot.stage == Stage::done) return false;
    if (slot.stage == Stage::delayed) {
        if (now_ns() < slot.not_before_ns) return false;
        slot.stage = Stage::done;
    } else {
        if (!engine_->finished(slot.handle)) return false;
        slot.times.arrived_ns = std::max(slot.times.arrived_ns, engine_->arrived_ns(slot.handle));
        engine_->release(slot.handle);
        const DataType type = slot.operation.type;
        const auto count = static_cast<int64_t>(slot.operation.element_count());
        switch (slot.stage) {
            case Stage::node_arrival:
                node_->sum_own_slice(type, slot.node_offset, count);
                enter_rail(slot);
                break;
            case Stage::rail:
                if (!slot.operation.in_node) node_->store_own_slice(type, slot.node_offset, count);
                meet_node(slot, Stage::node_departure);
                break;
            default:
                enter_end(slot);
        }
    }
    if (slot.stage == Stage::done) slot.times.end_ns = now_ns();
    return true;
}

void TransportCommunicator::enter_rail(Slot& slot) {
    if (slot.request.element_count == 0) return meet_node(slot, Stage::node_departure);
    slot.stage = Stage::rail;
    slot.handle = engine_->start(slot.request);
}

void TransportCommunicator::meet_node(Slot& slot, Stage stage) {
    ScheduleRequest request{.number = slot.request.number + (stage == Stage::node_arrival ? 1 : 2),
                            .operation = slot.request.operation,
                            .data = reinterpret_cast<std::byte*>(&slot.meeting),
                            .element_count = 1,
                            .group = kNodeGroup};
    request.plan = meeting_plan(world_.local_size);
    slot.stage = stage;
    slot.handle = engine_->start(request);
}

// Tests may ask for a slow network: transfers then follow each other as on a line of that speed.
void TransportCommunicator::enter_end(Slot& slot) {
    slot.stage = Stage::done;
    if (options_.test_delay_ns_per_kib == 0) return;
    const auto delay_ns = static_cast<int64_t>(slot.operation.byte_count) * options_.test_delay_ns_per_kib / 1024;
    delayed_until_ns_ = slot.not_before_ns = std::max(delayed_until_ns_, slot.times.arrived_ns) + delay_ns;
    slot.stage = Stage::delayed;
}

void TransportCommunicator::collect() {
    const uint64_t before = collected_;
    while (collected_ < started_ && slot_of(collected_ + 1).stage == Stage::done) ++collected_;
    if (collected_ == before) return;
    sent_bytes_ = engine_->sent_bytes();
    rounding_ = std::max(rounding_.load(), engine_->take_rounding());
    {
        const std::lock_guard lock(mutex_);
        finished_ = collected_;
    }
    finished_changed_.notify_all();
}

int64_t TransportCommunicator::patience_ns() const {
    int64_t patience_ns = kPatienceNs;
    for (uint64_t ticket = collected_ + 1; options_.test_delay_ns_per_kib > 0 && ticket <= started_; ++ticket) {
        const Slot& slot = slots_[ticket % kHistory];
        if (slot.stage == Stage::delayed) patience_ns = std::clamp<int64_t>(slot.not_before_ns - now_ns(), 0, patience_ns);
    }
    return patience_ns;
}

// Tells the peers. Only now do waiting callers learn of it: nobody touches their data any more.
void TransportCommunicator::fail(std::string_view what) {
    std::string cause(what);
    try {
        engine_->throw_if_mismatched();  // explains a message of unexpected length
    } catch (const CommError& mismatch) {
        cause = mismatch.what();
    }
    transport_->abort(cause);
    try {
        transport_->progress(0);  // sends it off
    } catch (const CommError&) {
        failed_ = true;  // as expected of an aborted transport
    }
    failed_ = true;
    const std::lock_guard lock(mutex_);
    if (issued_ > collected_) {
        const Slot& oldest = slot_of(collected_ + 1);
        const int64_t start_ns = oldest.times.start_ns;
        failure_in_flight_ = text_for(cause, oldest.operation.label, start_ns == 0 ? 0 : now_ns() - start_ns);
    }
    failure_ = std::move(cause);
    work_changed_.notify_all();
    finished_changed_.notify_all();
}

}  // namespace lockstep
