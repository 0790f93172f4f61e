#include "collectives/transport_communicator.h"

#include <sched.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

using schedule::Collective;

constexpr int64_t kSpinNs = 2'000'000;  // a caller that waits for a small operation looks around that long before it sleeps

bool more_cores_than(int rank_count) {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > rank_count;
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
    NodeMemory::before_meeting();
    wait(issue(operation, Collective::allreduce, {}));
    NodeMemory::after_meeting();
}

void TransportCommunicator::wait(uint64_t ticket) {
    {
        const std::lock_guard lock(mutex_);
        throw_if_failed(ticket, nullptr);
        if (finished_ >= ticket) return;
    }
    drive_until_finished(ticket);
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

// One that tells what another rank has said needs no advice of its own.
std::string TransportCommunicator::text_for(std::string_view what, const CollectiveLabel& label, int64_t waited_ns) const {
    const bool is_told = what.find("gave up") != std::string_view::npos || what.find("ranks disagree") != std::string_view::npos;
    if (is_told) return fmt::format("{} [rank {} was in {}]", what, world_.rank, describe(label));
    return failure_text(what, world_.rank, label, waited_ns);
}

// `label`: of an operation about to be issued, which then names the place.
void TransportCommunicator::throw_if_failed(uint64_t ticket, const CollectiveLabel* label) const {
    if (ticket <= finished_) return;
    if (!failure_in_flight_.empty()) throw CommError(failure_in_flight_);
    if (!failure_.empty()) throw CommError(text_for(failure_, label == nullptr ? CollectiveLabel{} : *label, 0));
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

}  // namespace lockstep
