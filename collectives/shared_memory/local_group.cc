#include "collectives/shared_memory/local_group.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "collectives/shared_memory/patience.h"
#include "core/error.h"

namespace lockstep {

namespace {

constexpr int64_t kHealthPeriodNs = 20'000'000;  // how often a waiting rank looks for deaths and deadlines
constexpr int64_t kLongestLookNs = 100'000'000;  // between two looks: then it was computing, or absent

std::vector<int> pids_of(const NodeSegment& segment) {
    std::vector<int> pids;
    for (int rank = 0; rank < segment.rank_count(); ++rank) {
        pids.push_back(segment.control().ranks[rank].pid.load(std::memory_order_relaxed));
    }
    return pids;
}

std::vector<cpu_set_t> cores_of(const NodeSegment& segment) {
    std::vector<cpu_set_t> cores;
    for (int peer = 0; peer < segment.rank_count(); ++peer) cores.push_back(segment.block(peer).cores);
    return cores;
}

}  // namespace

LocalGroup::LocalGroup(std::shared_ptr<NodeSegment> segment, const World& world, int64_t timeout_ms, std::string flight_record_path)
    : segment_(std::move(segment)),
      rank_(world.local_rank),
      size_(world.local_size),
      first_rank_(world.rank - world.local_rank),
      timeout_ns_(timeout_ms * 1'000'000),
      flight_record_path_(std::move(flight_record_path)),
      own_block_(segment_->block(rank_)),
      watch_(pids_of(*segment_), world.local_rank, first_rank_),
      last_look_ns_(now_ns()),
      awake_(kLongestLookNs, last_look_ns_),
      silent_since_ns_(static_cast<size_t>(size_), last_look_ns_),
      seen_progress_(static_cast<size_t>(size_)) {
    const std::vector<cpu_set_t> cores = cores_of(*segment_);
    shares_cores_ = lockstep::shares_cores(cores, rank_);
    for (int peer = 0; peer < size_; ++peer) any_shares_cores_ = any_shares_cores_ || lockstep::shares_cores(cores, peer);
}

LocalGroup::~LocalGroup() { segment_->control().ranks[rank_].state.store(kRankLeft, std::memory_order_release); }

void LocalGroup::announce(uint64_t sequence, uint64_t plan_hash, std::span<const std::byte> payload) {
    Announcement& mine = announcement(rank_, sequence);
    if (!payload.empty()) std::memcpy(mine.payload, payload.data(), payload.size());
    mine.tag.store(tag_of(sequence, plan_hash), std::memory_order_release);
    // Takes the next line from the peers, which have it since they read it last, before it is needed. Its content stays.
    std::atomic<uint64_t>& next = announcement(rank_, sequence + 1).tag;
    next.store(next.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

bool LocalGroup::lacks(int peer) const {
    const RankBlock& block = segment_->block(peer);
    switch (awaited_.what) {
        case Awaited::nothing:
            return false;
        case Awaited::announcement:
            return announcement(peer, awaited_.value).tag.load(std::memory_order_acquire) != awaited_.tag;
        case Awaited::phase:
            return block.phase.load(std::memory_order_acquire) < awaited_.value;
        case Awaited::done:
            return block.done.load(std::memory_order_acquire) < awaited_.value;
    }
    return false;
}

void LocalGroup::look(const CollectiveLabel& label, int64_t start_ns) {
    throw_if_aborted(label);
    const int64_t now = now_ns();
    if (now - last_look_ns_ < kHealthPeriodNs) return;
    last_look_ns_ = now;
    watch_.refresh();
    const int64_t awake_ns = awake_.read(now);
    for (int peer = 0; peer < size_; ++peer) check_peer(peer, awake_ns, label, now - start_ns);
}

void LocalGroup::check_peer(int peer, int64_t awake_ns, const CollectiveLabel& label, int64_t waited_ns) {
    const auto index = static_cast<size_t>(peer);
    const bool left = segment_->control().ranks[peer].state.load(std::memory_order_acquire) == kRankLeft;
    // In this order: one that has shown all that is awaited may go; only its absence later is an error.
    if (!lacks(peer)) {
        silent_since_ns_[index] = awake_ns;
        return;
    }
    if (left || watch_.has_ended(peer)) {
        fail(failure_text(fmt::format("rank {} (pid {}) {}", name_of(peer), watch_.pid(peer), left ? "left the job" : "died"),
                          name_of(rank_), label, waited_ns),
             label);
    }
    const uint64_t progress = segment_->block(peer).progress.load(std::memory_order_relaxed);
    if (std::exchange(seen_progress_[index], progress) != progress) silent_since_ns_[index] = awake_ns;
    const int64_t silent_ns = awake_ns - silent_since_ns_[index];
    if (silent_ns < timeout_ns_) return;
    fail(failure_text(fmt::format("rank {} (pid {}) made no progress for {:.1f} s", name_of(peer), watch_.pid(peer),
                                  1e-9 * static_cast<double>(silent_ns)),
                      name_of(rank_), label, waited_ns),
         label);
}

void LocalGroup::fail_disagreement(int peer, uint64_t sequence) {
    const auto mine = flights().find(sequence);
    check(mine.has_value(), "an announced operation is in the flight record");
    // The peer records what it has announced within nanoseconds, unless it dies or is stopped just there.
    auto theirs = segment_->block(peer).flights.find(sequence);
    for (const Deadline patience = Deadline::after_ms(100); !theirs && !patience.expired(); sched_yield()) {
        theirs = segment_->block(peer).flights.find(sequence);
    }
    const CollectiveLabel label{.what = mine->signature.what, .step = mine->signature.step, .bucket = mine->signature.bucket};
    if (!theirs) {
        fail(fmt::format("ranks disagree at collective {}: rank {} runs {}, rank {} has not recorded what it runs; is it alive?",
                         sequence, name_of(rank_), describe(mine->signature), name_of(peer)),
             label);
    }
    fail(mismatch_text(name_of(rank_), mine->signature, name_of(peer), theirs->signature), label);
}

void LocalGroup::throw_abort(const CollectiveLabel& label) const {
    const SegmentControl& control = segment_->control();
    // The writer needs microseconds; one that died while writing must not hold up the others.
    const Deadline patience = Deadline::after_ms(100);
    while (control.abort_state.load(std::memory_order_acquire) == kAbortBeingWritten && !patience.expired()) sched_yield();
    const bool readable = control.abort_state.load(std::memory_order_acquire) == kAborted;
    throw CommError(fmt::format("{} [rank {} was in {}]", readable ? control.abort_reason : "a peer gave up and died",
                                name_of(rank_), describe(label)));
}

bool LocalGroup::tell_all(std::string_view text) noexcept {
    SegmentControl& control = segment_->control();
    uint32_t expected = kNotAborted;
    if (!control.abort_state.compare_exchange_strong(expected, kAbortBeingWritten, std::memory_order_acq_rel)) return false;
    const std::string_view kept = text.substr(0, SegmentControl::kReasonBytes - 1);
    std::copy(kept.begin(), kept.end(), control.abort_reason);
    control.abort_reason[kept.size()] = '\0';
    control.abort_state.store(kAborted, std::memory_order_release);
    return true;
}

// All ranks end with the text of the one that noticed first; that one also writes the flight record, after telling the others.
void LocalGroup::fail(const std::string& text, const CollectiveLabel& label) {
    const std::string told =
        flight_record_path_.empty() ? text : fmt::format("{}; what every rank did last is in {}", text, flight_record_path_);
    if (!tell_all(told)) throw_abort(label);
    if (flight_record_path_.empty()) throw CommError(told);
    const std::string trouble = write_flight_record(flight_record_path_, *segment_, first_rank_, text);
    throw CommError(trouble.empty() ? told : fmt::format("{} (not written: {})", told, trouble));
}

void LocalGroup::abort(std::string_view reason) noexcept {
    char text[SegmentControl::kReasonBytes];
    const auto result = fmt::format_to_n(text, sizeof text - 1, "rank {} gave up: {}", name_of(rank_), reason);
    tell_all({text, std::min(result.size, sizeof text - 1)});
}

}  // namespace lockstep
