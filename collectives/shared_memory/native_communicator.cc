#include "collectives/shared_memory/native_communicator.h"

#include <algorithm>
#include <utility>

#include "collectives/shared_memory/patience.h"
#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

namespace {

std::shared_ptr<NodeSegment> joined(std::shared_ptr<NodeSegment> segment, const World& world, int64_t timeout_ms) {
    segment->join(world, timeout_ms);
    return segment;
}

}  // namespace

NativeCommunicator::NativeCommunicator(const World& world, std::shared_ptr<NodeSegment> segment, const CommunicatorOptions& options)
    : world_(world),
      delay_ns_per_kib_(options.test_delay_ns_per_kib),
      group_(joined(std::move(segment), world, options.connect_timeout_ms), world, options.timeout_ms, options.flight_record_path),
      pool_(group_.segment().region(world.local_rank), group_.segment().region_bytes()),
      common_pool_(group_.segment().common(), group_.segment().common_bytes()),
      transfer_(group_),
      limits_(path_limits(group_.any_shares_cores())) {}

NativeCommunicator::~NativeCommunicator() {
    try {
        if (failure_ == nullptr) wait_for(issued_);
    } catch (...) {
        return;  // whoever wanted the result has been told, or has not asked
    }
}

uint64_t NativeCommunicator::issue(Operation operation) {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    try {
        group_.throw_if_aborted(operation.label);
        if (issued_ - finished_ == kHistory) wait_for(finished_ + 1);
        operation.sequence = issued_ + 1;
        Flight& next = flight(operation.sequence);
        next = {.operation = operation};
        if (operation.has_elements()) next.place = pool_.offset_of(operation.target, operation.byte_count);
        next.path = choose_path(operation, next.place, limits_);
        const OperationSignature signature = OperationSignature::of(operation, next.place);
        next.plan_hash = signature.plan_hash;
        issued_ = operation.sequence;
        announce_next();
        // Clock and record come while the announcement travels.
        next.start_ns = now_ns();
        group_.flights().begin(signature, next.start_ns);
    } catch (...) {
        keep_failure();
    }
    return operation.sequence;
}

void NativeCommunicator::advance() {
    group_.nothing_awaited();
    while (announce_next()) continue;
    while (share_next()) continue;
    while (finish_next()) continue;
}

bool NativeCommunicator::announce_next() {
    if (announced_ == issued_) return false;
    const uint64_t sequence = announced_ + 1;
    // The slot and the copy must not be in use any more.
    if (sequence > RankBlock::kAnnouncements && !group_.all_done(sequence - RankBlock::kAnnouncements)) return false;
    const Flight& next = flight(sequence);
    std::span<const std::byte> payload;
    if (!transfer_.prepare(next.operation, next.path, payload)) return false;
    group_.announce(sequence, next.plan_hash, payload);
    announced_ = sequence;
    return true;
}

bool NativeCommunicator::share_next() {
    if (shared_ == announced_) return false;
    const uint64_t sequence = shared_ + 1;
    Flight& next = flight(sequence);
    if (!group_.all_announced(sequence, next.plan_hash)) return false;
    if (delay_ns_per_kib_ > 0 && !delay_has_passed(next)) return false;
    group_.flights().work(sequence);
    if (!transfer_.share(next.operation, next.path, next.place)) return false;
    group_.announce_done(sequence);
    shared_ = sequence;
    next.shared_ns = now_ns();
    group_.flights().share(sequence, next.shared_ns);
    return true;
}

bool NativeCommunicator::finish_next() {
    if (finished_ == shared_) return false;
    const uint64_t sequence = finished_ + 1;
    if (flight(sequence).path == SegmentPath::direct && !group_.all_done(sequence)) return false;
    group_.flights().finish(sequence);
    finished_ = sequence;
    return true;
}

// Like a slow link that carries one operation after another, whenever this rank looks.
bool NativeCommunicator::delay_has_passed(Flight& flight) {
    if (flight.not_before_ns == 0) {
        const int64_t duration_ns = static_cast<int64_t>(flight.operation.byte_count) * delay_ns_per_kib_ / 1024;
        flight.not_before_ns = std::max(arrival_ns(flight.operation.sequence), link_free_ns_) + duration_ns;
        link_free_ns_ = flight.not_before_ns;
    }
    return now_ns() >= flight.not_before_ns;
}

// When the last rank came to the operation; this rank may have looked much later. All have announced it; one that has not recorded
// it yet announced it at this very moment.
int64_t NativeCommunicator::arrival_ns(uint64_t ticket) const {
    int64_t arrived_ns = flight(ticket).start_ns;
    for (int rank = 0; rank < group_.size(); ++rank) {
        const auto entry = group_.flights_of(rank).find(ticket);
        const int64_t shared_ns = flight(ticket).shared_ns;
        const int64_t start_ns = entry ? entry->start_ns : shared_ns > 0 ? shared_ns : now_ns();
        arrived_ns = std::max(arrived_ns, start_ns);
    }
    return arrived_ns;
}

void NativeCommunicator::wait_for(uint64_t ticket) {
    advance();
    if (finished_ >= ticket) [[likely]]
        return;
    group_.throw_if_aborted(flight(finished_ + 1).operation.label);
    Patience patience(group_.shares_cores());
    for (uint64_t seen_steps = steps(); finished_ < ticket; advance()) {
        if (steps() != seen_steps) patience.renew();
        seen_steps = steps();
        if (patience.pass()) look();
    }
}

void NativeCommunicator::look() {
    const Flight& oldest = flight(finished_ + 1);
    group_.look(oldest.operation.label, oldest.start_ns);
}

void NativeCommunicator::progress() noexcept {
    group_.show_progress();
    if (finished_ == issued_ || failure_ != nullptr) return;
    try {
        advance();
        if (finished_ < issued_) look();
    } catch (...) {
        failure_ = std::current_exception();
    }
}

bool NativeCommunicator::test(uint64_t ticket) {
    if (finished_ < ticket) progress();
    if (finished_ >= ticket) return true;
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return false;
}

void NativeCommunicator::wait(uint64_t ticket) {
    if (finished_ >= ticket) return;
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    try {
        wait_for(ticket);
    } catch (...) {
        keep_failure();
    }
}

void NativeCommunicator::keep_failure() {
    if (failure_ == nullptr) failure_ = std::current_exception();
    throw;
}

// Arrival and end are those of the last rank, which this one may have noticed much later: they stand in the ranks' flight records.
// What is done but not recorded yet happened at this very moment.
WorkTimes NativeCommunicator::times(uint64_t ticket) const {
    check(ticket <= finished_ && ticket + kHistory > issued_, "times are kept for the last kHistory finished operations");
    const Flight& done = flight(ticket);
    WorkTimes result{.start_ns = done.start_ns, .arrived_ns = arrival_ns(ticket), .end_ns = done.shared_ns};
    if (done.path != SegmentPath::direct) return result;
    for (int rank = 0; rank < group_.size(); ++rank) {
        const auto entry = group_.flights_of(rank).find(ticket);
        const bool is_recorded = entry && entry->shared_ns > 0;
        result.end_ns = std::max(result.end_ns, is_recorded ? entry->shared_ns : now_ns());
    }
    return result;
}

Work NativeCommunicator::allreduce(std::span<std::byte> data, DataType type, CollectiveLabel label) {
    return {this, issue(allreduce_of(data, type, label))};
}

Work NativeCommunicator::start_reduce_scatter(std::span<std::byte> data, DataType type, CollectiveLabel label) {
    return {this, issue(reduce_scatter_of(data, type, label))};
}

Work NativeCommunicator::start_allgather_slices(std::span<std::byte> data, DataType type, CollectiveLabel label) {
    return {this, issue(allgather_slices_of(data, type, label))};
}

void NativeCommunicator::reduce_scatter(std::span<std::byte> data, DataType type, CollectiveLabel label) {
    wait(issue(reduce_scatter_of(data, type, label)));
}

void NativeCommunicator::allgather(std::span<const std::byte> mine, std::span<std::byte> all, CollectiveLabel label) {
    wait(issue(allgather_of(mine, all, group_.size(), label)));
}

void NativeCommunicator::broadcast(std::span<std::byte> data, int root, CollectiveLabel label) {
    wait(issue(broadcast_of(data, root, group_.size(), label)));
}

Work NativeCommunicator::reduce_to_slices(std::span<float> data, CollectiveLabel label) {
    return start_reduce_scatter(std::as_writable_bytes(data), DataType::f32, label);
}

void NativeCommunicator::exchange_slices(std::span<float> data, CollectiveLabel label) {
    start_allgather_slices(std::as_writable_bytes(data), DataType::f32, label).wait();
}

void NativeCommunicator::barrier(CollectiveLabel label) { wait(issue(barrier_of(label))); }

std::unique_ptr<Communicator> make_native_communicator(const World& world, Store& store, const std::string& prefix,
                                                       const CommunicatorOptions& options) {
    auto segment = NodeSegment::open(world, store, prefix,
                                     {.pool_bytes_per_rank = options.segment_bytes, .common_bytes = options.common_bytes},
                                     options.connect_timeout_ms);
    return std::make_unique<NativeCommunicator>(world, std::move(segment), options);
}

}  // namespace lockstep
