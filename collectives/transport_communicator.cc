#include "collectives/transport_communicator.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

using schedule::Collective;

constexpr int64_t kPatienceNs = 100'000'000;  // wake() and arriving bytes end a wait before
constexpr size_t kSmallBytes = 64 << 10;      // up to here the caller itself sends off what it starts
constexpr int64_t kSpinNs = 2'000'000;        // a caller that waits for a small one looks around that long before it sleeps
constexpr int kNicer = 5;                     // the thread yields to those that compute
constexpr int kWorldGroup = 0;
constexpr int kNodeGroup = 1;
constexpr int kRailGroup = 2;
constexpr uint64_t kNumbersPerTicket = 4;  // an operation takes up to three turns in the engine

bool more_cores_than(int rank_count) {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > rank_count;
}

int64_t thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// One that tells what another rank has said needs no advice of its own.
std::string text_for(std::string_view what, int rank, const CollectiveLabel& label, int64_t waited_ns) {
    const bool is_told = what.find("gave up") != std::string_view::npos || what.find("ranks disagree") != std::string_view::npos;
    if (is_told) return fmt::format("{} [rank {} was in {}]", what, rank, describe(label));
    return failure_text(what, rank, label, waited_ns);
}

// Of ranks that only meet: one number each.
schedule::Plan meeting_plan(int rank_count) {
    return {.collective = Collective::allreduce, .algorithm = schedule::Algorithm::exchange, .radix = std::clamp(rank_count, 2, 8)};
}

}  // namespace

TransportCommunicator::TransportCommunicator(const World& world, const CommunicatorOptions& options, Parts parts)
    : world_(world),
      parts_(std::move(parts)),
      options_(options),
      spin_ns_(more_cores_than(world.local_size) ? kSpinNs : 0),
      idle_period_ns_(std::clamp<int64_t>(options.timeout_ms * 1'000'000 / 16, 5'000'000, 50'000'000)) {
    if (!parts_.one_thread) make_parts();
    // Signals are the program's business: the thread inherits a mask that blocks them all, and with them SIGPIPE.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { thread_main(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    std::unique_lock lock(mutex_);
    finished_changed_.wait(lock, [&] { return ready_; });
    if (start_failure_ == nullptr) return;
    lock.unlock();
    thread_.join();
    std::rethrow_exception(start_failure_);
}

TransportCommunicator::~TransportCommunicator() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    work_changed_.notify_all();
    thread_.join();
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

MemoryPool& TransportCommunicator::gradient_pool() {
    if (node_ != nullptr) return node_->pool();
    return heap_;
}

// ---- the caller's side ----

void TransportCommunicator::plan(Slot& slot, Collective collective, std::span<std::byte> data) {
    const Operation& operation = slot.operation;
    const DataType value = operation.sums() ? operation.type : DataType::u8;
    const bool converts = operation.label.may_round && value == DataType::f32;
    const ElementFormat format{value, converts ? options_.wire : value};
    // Half types are rounded once: one rank sums a piece over all ranks, in one go.
    const bool rounds = operation.sums() && value != DataType::f32;
    const bool may_go_through_node = operation.kind == OperationKind::allreduce || operation.in_node;
    if (node_ != nullptr && may_go_through_node && !data.empty() && !rounds) {
        slot.node_offset = node_->offset_of(data.data(), data.size());
        if (static_cast<int64_t>(data.size()) < tuning_.hierarchical_from_bytes) slot.node_offset = -1;
    }
    ScheduleRequest& request = slot.request;
    request = {.number = kNumbersPerTicket * operation.sequence,
               .operation = OperationSignature::of(operation, slot.node_offset),
               .format = format,
               .data = data.data(),
               .element_count = static_cast<int64_t>(data.size() / format.value_bytes()),
               .group = kWorldGroup};
    if (data.empty()) {  // nothing to transfer: the ranks meet all the same
        request.format = {DataType::f32, DataType::f32};
        request.data = reinterpret_cast<std::byte*>(&slot.meeting);
        request.element_count = 1;
        collective = Collective::allreduce;
        request.group = operation.in_node ? kNodeGroup : kWorldGroup;
    }
    const Selector* selector = &tuning_.flat;
    if (slot.node_offset >= 0) {
        const auto [first, last] = node_->own_slice(request.element_count);
        request.data += static_cast<size_t>(first) * format.value_bytes();
        request.element_count = last - first;
        request.group = kRailGroup;
        request.stable = true;
        selector = &*tuning_.rails;
    }
    const auto bytes = static_cast<int64_t>(static_cast<size_t>(request.element_count) * request.format.value_bytes());
    request.plan =
        request.group == kNodeGroup ? meeting_plan(world_.local_size) : selector->choose(collective, bytes, operation.root);
    if (rounds) {
        request.plan = {
            .collective = collective, .algorithm = schedule::Algorithm::halving_doubling, .radix = std::max(world_.size, 2)};
    }
}

uint64_t TransportCommunicator::issue(const Operation& operation, Collective collective, std::span<std::byte> data) {
    std::unique_lock lock(mutex_);
    throw_if_failed(std::numeric_limits<uint64_t>::max(), &operation.label);
    if (issued_ - finished_ == kHistory) {
        const uint64_t oldest = finished_ + 1;
        lock.unlock();
        drive_until_finished(oldest);
        lock.lock();
    }
    const uint64_t ticket = issued_ + 1;
    Slot& slot = slot_of(ticket);
    slot = {};
    slot.operation = operation;
    slot.operation.sequence = ticket;
    plan(slot, collective, data);
    issued_ = ticket;
    return ticket;
}

Work TransportCommunicator::allreduce(std::span<std::byte> data, DataType type, CollectiveLabel label) {
    return launch(issue(allreduce_of(data, type, label), Collective::allreduce, data));
}

// Of an operation that the caller does not wait for yet.
Work TransportCommunicator::launch(uint64_t ticket) {
    if (thread_drives_) {
        transport_->wake();
        return {this, ticket};
    }
    // The first messages of a small operation leave at once; the thread goes on with it, unless the caller waits before.
    if (slot_of(ticket).operation.byte_count <= kSmallBytes && !parts_.one_thread && drive_.try_lock()) {
        const std::lock_guard driving(drive_, std::adopt_lock);
        look_around();
    }
    work_changed_.notify_one();
    return {this, ticket};
}

void TransportCommunicator::reduce_scatter(std::span<std::byte> data, DataType type, CollectiveLabel label) {
    wait(issue(reduce_scatter_of(data, type, label), Collective::reduce_scatter, data));
}

void TransportCommunicator::allgather(std::span<const std::byte> mine, std::span<std::byte> all, CollectiveLabel label) {
    constexpr size_t kUnit = 16;  // of Communicator::slice: parts of whole units are the slices of `all`
    const Operation operation = allgather_of(mine, all, world_.size, label);
    const auto rank_count = static_cast<size_t>(world_.size);
    const size_t part_bytes = (mine.size() + kUnit - 1) / kUnit * kUnit;
    const bool padded = part_bytes != mine.size();
    if (padded) gathered_.resize(part_bytes * rank_count);
    const std::span<std::byte> target = padded ? std::span(gathered_) : all;
    std::copy(mine.begin(), mine.end(), target.begin() + static_cast<int64_t>(part_bytes) * world_.rank);
    wait(issue(operation, Collective::allgather, target));
    for (size_t rank = 0; padded && rank < rank_count; ++rank) {
        std::memcpy(all.data() + rank * mine.size(), target.data() + rank * part_bytes, mine.size());
    }
}

void TransportCommunicator::broadcast(std::span<std::byte> data, int root, CollectiveLabel label) {
    wait(issue(broadcast_of(data, root, world_.size, label), Collective::broadcast, data));
}

void TransportCommunicator::barrier(CollectiveLabel label) { wait(issue(barrier_of(label), Collective::allreduce, {})); }

MemoryPool& TransportCommunicator::common_pool() {
    if (node_ != nullptr) return node_->common_pool();
    return heap_;
}

std::pair<int64_t, int64_t> TransportCommunicator::node_slice(int64_t count) const {
    if (node_ != nullptr) return node_->own_slice(count);
    return {0, count};
}

Work TransportCommunicator::reduce_to_slices(std::span<float> data, CollectiveLabel label) {
    const std::span<std::byte> bytes = std::as_writable_bytes(data);
    Operation operation = reduce_scatter_of(bytes, DataType::f32, label);
    operation.in_node = true;
    return launch(issue(operation, Collective::allreduce, bytes));
}

void TransportCommunicator::exchange_slices(std::span<float> data, CollectiveLabel label) {
    if (node_ == nullptr) return;
    const int64_t offset = node_->offset_of(data.data(), data.size_bytes());
    check(offset >= 0, "slices are exchanged in the gradient pool");
    node_barrier(label);  // nobody needs its own data any more
    node_->store_own_slice(DataType::f32, offset, static_cast<int64_t>(data.size()));
    node_barrier(label);
}

void TransportCommunicator::node_barrier(CollectiveLabel label) {
    if (node_ == nullptr) return;
    Operation operation = barrier_of(label);
    operation.in_node = true;
    // The meeting travels by messages; the fences order what lies in memory.
    std::atomic_thread_fence(std::memory_order_release);
    wait(issue(operation, Collective::allreduce, {}));
    std::atomic_thread_fence(std::memory_order_acquire);
}

void TransportCommunicator::wait(uint64_t ticket) {
    {
        const std::lock_guard lock(mutex_);
        throw_if_failed(ticket, nullptr);
        if (finished_ >= ticket) return;
    }
    drive_until_finished(ticket);
}

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

bool TransportCommunicator::test(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    throw_if_failed(ticket, nullptr);
    return finished_ >= ticket;
}

WorkTimes TransportCommunicator::times(uint64_t ticket) const {
    const std::lock_guard lock(mutex_);
    check(ticket <= finished_ && ticket + kHistory > issued_, "times are kept for the last kHistory finished operations");
    return slots_[ticket % kHistory].times;
}

// `label`: of an operation about to be issued, which then names the place.
void TransportCommunicator::throw_if_failed(uint64_t ticket, const CollectiveLabel* label) const {
    if (ticket <= finished_) return;
    if (!failure_in_flight_.empty()) throw CommError(failure_in_flight_);
    if (!failure_.empty()) throw CommError(text_for(failure_, world_.rank, label == nullptr ? CollectiveLabel{} : *label, 0));
    if (!abort_text_.empty() && label != nullptr) throw CommError(abort_text_);
}

void TransportCommunicator::progress() noexcept { transport_->note_progress(); }

void TransportCommunicator::abort(std::string_view reason) noexcept {
    transport_->abort(reason);
    try {
        const std::lock_guard lock(mutex_);
        if (abort_text_.empty()) abort_text_ = fmt::format("rank {} gave up: {}", world_.rank, reason);
    } catch (...) {
        // Out of memory: the transport knows, so whoever drives it meets the reason.
    }
    work_changed_.notify_all();
}

CommunicatorUsage TransportCommunicator::take_usage() {
    const uint64_t sent_bytes = sent_bytes_.load();
    return {.cpu_s = 1e-9 * static_cast<double>(cpu_ns_.exchange(0)),
            .sent_bytes = sent_bytes - std::exchange(reported_sent_bytes_, sent_bytes),
            .wire_rounding = rounding_.exchange(0.0F)};
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
        failure_in_flight_ = text_for(cause, world_.rank, oldest.operation.label, start_ns == 0 ? 0 : now_ns() - start_ns);
    }
    failure_ = std::move(cause);
    work_changed_.notify_all();
    finished_changed_.notify_all();
}

}  // namespace lockstep
