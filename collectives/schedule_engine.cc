#include "collectives/schedule_engine.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/hash.h"

namespace lockstep {

namespace {

constexpr int kTagBits = 16;  // below the sequence: lane and channel
constexpr uint64_t kMaxLanes = (uint64_t{1} << (kTagBits - 2)) - 1;
constexpr uint64_t kSignatureTag = (uint64_t{1} << kTagBits) - 1;
constexpr int32_t kSignatureUrgency = 1 << 21;

ScheduleSignature signature_of(const ScheduleRequest& request) {
    ScheduleSignature signature{.operation = request.operation, .plan = request.plan, .wire = request.format.wire};
    const schedule::Plan& plan = request.plan;
    const int64_t fields[] = {static_cast<int64_t>(plan.collective),
                              static_cast<int64_t>(plan.algorithm),
                              plan.radix,
                              plan.chunks,
                              plan.root,
                              request.element_count,
                              static_cast<int64_t>(request.format.value),
                              static_cast<int64_t>(request.format.wire)};
    signature.hash = hash_bytes(fields, sizeof fields, request.operation.plan_hash);
    return signature;
}

std::string disagreement_text(int rank, const ScheduleSignature& mine, int peer, const ScheduleSignature& theirs) {
    if (mine.operation.plan_hash != theirs.operation.plan_hash) return mismatch_text(rank, mine.operation, peer, theirs.operation);
    return fmt::format(
        "ranks disagree at collective {}, {}: rank {} plans {} with {} on the wire, rank {} plans {} with {}; give all ranks the "
        "same "
        "program and comm settings",
        mine.operation.sequence, describe(mine.operation), rank, schedule::describe(mine.plan), to_string(mine.wire), peer,
        schedule::describe(theirs.plan), to_string(theirs.wire));
}

// In the other schedules every part of a result has been sent by its owner, or come from it, so it is rounded already. In an
// exchange all ranks sum equal parts; only a rank that passes the result on would hold the rounded one.
bool rounds_results(const schedule::Plan& plan) { return plan.algorithm == schedule::Algorithm::exchange; }

// Smaller first; equal sizes in order of start.
int32_t urgency_of(size_t bytes) { return 64 - static_cast<int32_t>(std::bit_width(bytes)); }

}  // namespace

// A prepared program with the signatures that open it: one operation at a time.
struct ScheduleEngine::Flight {
    struct Neighbour {
        int rank = 0;
        Transfer out;
        Transfer in;
        ScheduleSignature theirs;
        bool verified = false;
    };

    Flight(const ScheduleRequest& request, int rank, const std::vector<int>& ranks, size_t eager_bytes)
        : key(request),
          run(schedule::build(request.plan, static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()),
                              static_cast<int>(ranks.size()), request.element_count),
              ranks, request.format, {.eager_bytes = eager_bytes, .rounds_results = rounds_results(request.plan)}),
          neighbours(run.neighbours().size()) {
        for (size_t index = 0; index < neighbours.size(); ++index) {
            Neighbour& neighbour = neighbours[index];
            neighbour.rank = run.neighbours()[index];
            for (Transfer* transfer : {&neighbour.out, &neighbour.in}) {
                transfer->peer = neighbour.rank;
                transfer->bytes = sizeof(ScheduleSignature);
                transfer->urgency = kSignatureUrgency;
            }
            neighbour.out.data = reinterpret_cast<std::byte*>(&mine);
            neighbour.in.data = reinterpret_cast<std::byte*>(&neighbour.theirs);
        }
    }

    bool fits(const ScheduleRequest& request) const {
        return key.plan == request.plan && key.format == request.format && key.element_count == request.element_count &&
               key.group == request.group && key.stable == request.stable && (!key.stable || key.data == request.data);
    }

    bool signatures_sent() const {
        return std::all_of(neighbours.begin(), neighbours.end(),
                           [](const Neighbour& neighbour) { return neighbour.out.complete(); });
    }

    ScheduleRequest key;
    ProgramRun run;
    std::vector<Neighbour> neighbours;
    ScheduleSignature mine;
    std::byte* data = nullptr;
    size_t unverified = 0;
    int64_t arrived_ns = 0;
    int handle = -1;  // -1: idle
    bool done = false;
    int32_t urgency = 0;
    uint64_t last_use = 0;
};

ScheduleEngine::ScheduleEngine(Transport& transport, int rank, std::vector<std::vector<int>> groups, const EngineOptions& options)
    : transport_(transport), rank_(rank), groups_(std::move(groups)), options_(options), by_handle_(kMaxInFlight, nullptr) {
    active_.reserve(kMaxInFlight);
}

ScheduleEngine::~ScheduleEngine() = default;

void ScheduleEngine::prepare(const ScheduleRequest& request) {
    for (const auto& flight : prepared_) {
        if (flight->handle < 0 && flight->fits(request)) return;
    }
    prepared_.push_back(
        std::make_unique<Flight>(request, rank_, groups_[static_cast<size_t>(request.group)], options_.eager_bytes));
}

ScheduleEngine::Flight& ScheduleEngine::obtain(const ScheduleRequest& request) {
    for (int attempt = 0;; ++attempt) {
        for (const auto& flight : prepared_) {
            if (flight->handle < 0 && flight->fits(request)) return *flight;
        }
        check(attempt == 0, "what has been prepared is found");
        evict_idle();
        prepare(request);
    }
}

// Keeps the memory of a long run with ever new sizes bounded. Programs for stable addresses stay.
void ScheduleEngine::evict_idle() {
    const auto evictable = [](const std::unique_ptr<Flight>& flight) { return flight->handle < 0 && !flight->key.stable; };
    if (static_cast<size_t>(std::count_if(prepared_.begin(), prepared_.end(), evictable)) < kMostIdleKept) return;
    const auto oldest = std::min_element(prepared_.begin(), prepared_.end(), [&](const auto& left, const auto& right) {
        return std::pair(!evictable(left), left->last_use) < std::pair(!evictable(right), right->last_use);
    });
    prepared_.erase(oldest);
}

bool ScheduleEngine::can_start() const {
    if (std::find(by_handle_.begin(), by_handle_.end(), nullptr) == by_handle_.end()) return false;
    return active_.empty() || eager_in_flight_ < options_.eager_window_bytes;
}

int ScheduleEngine::start(const ScheduleRequest& request) {
    Flight& flight = obtain(request);
    const auto free = std::find(by_handle_.begin(), by_handle_.end(), nullptr);
    check(free != by_handle_.end(), "no more operations are started than there are handles");
    flight.handle = static_cast<int>(free - by_handle_.begin());
    *free = &flight;
    flight.last_use = ++clock_;
    flight.done = false;
    flight.data = request.data;
    flight.urgency = urgency_of(static_cast<size_t>(request.element_count) * request.format.value_bytes());
    flight.mine = signature_of(request);
    eager_in_flight_ += flight.run.eager_bytes_per_peer();
    active_.insert(std::upper_bound(active_.begin(), active_.end(), &flight,
                                    [](const Flight* left, const Flight* right) { return left->urgency > right->urgency; }),
                   &flight);
    post_signatures(flight, request.number);
    flight.run.start(transport_, request.data, request.number << kTagBits, flight.urgency);
    return flight.handle;
}

void ScheduleEngine::post_signatures(Flight& flight, uint64_t number) {
    flight.unverified = flight.neighbours.size();
    flight.arrived_ns = flight.unverified == 0 ? now_ns() : 0;
    for (Flight::Neighbour& neighbour : flight.neighbours) {
        neighbour.verified = false;
        for (Transfer* transfer : {&neighbour.out, &neighbour.in}) {
            transfer->tag = (number << kTagBits) | kSignatureTag;
            transfer->moved = 0;
        }
        transport_.post_receive(neighbour.in);
        transport_.post_send(neighbour.out);
    }
}

void ScheduleEngine::verify_signatures(Flight& flight) {
    for (Flight::Neighbour& neighbour : flight.neighbours) {
        if (neighbour.verified || !neighbour.in.complete()) continue;
        if (neighbour.theirs.hash != flight.mine.hash) {
            throw CommError(disagreement_text(rank_, flight.mine, neighbour.rank, neighbour.theirs));
        }
        neighbour.verified = true;
        if (--flight.unverified == 0) flight.arrived_ns = now_ns();
    }
}

void ScheduleEngine::throw_if_mismatched() {
    for (Flight* flight : active_) verify_signatures(*flight);
}

bool ScheduleEngine::advance() {
    int64_t budget = options_.sum_budget;
    bool got_on = false;
    for (Flight* flight : active_) {
        if (flight->unverified > 0) verify_signatures(*flight);
        if (flight->run.advance(transport_, budget)) got_on = true;
        if (flight->unverified > 0 || !flight->run.finished() || !flight->signatures_sent()) continue;
        finish(*flight);
        got_on = true;
    }
    std::erase_if(active_, [](const Flight* flight) { return flight->done; });
    return got_on;
}

void ScheduleEngine::finish(Flight& flight) {
    flight.done = true;
    eager_in_flight_ -= flight.run.eager_bytes_per_peer();
    sent_bytes_ += flight.run.sent_bytes();
    rounding_.merge({flight.run.rounding().relative(), 1.0F});
}

bool ScheduleEngine::finished(int handle) const { return by_handle_[static_cast<size_t>(handle)]->done; }

int64_t ScheduleEngine::arrived_ns(int handle) const { return by_handle_[static_cast<size_t>(handle)]->arrived_ns; }

void ScheduleEngine::release(int handle) {
    Flight*& place = by_handle_[static_cast<size_t>(handle)];
    check(place != nullptr && place->done, "only finished operations are released");
    place->handle = -1;
    place = nullptr;
}

float ScheduleEngine::take_rounding() { return std::exchange(rounding_, {}).max_error; }

}  // namespace lockstep
