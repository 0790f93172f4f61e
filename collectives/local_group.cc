#include "collectives/local_group.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/clock.h"
#include "core/error.h"
#include "hwy/cache_control.h"

namespace lockstep {

namespace {

constexpr int64_t kHealthPeriodNs = 20'000'000;  // how often a waiting rank looks for deaths and deadlines
constexpr int kSpinPolls = 2000;                 // about 50 us
constexpr int64_t kYieldNs = 100'000;            // then yields until this much has passed
constexpr int64_t kShortSleepNs = 50'000;        // then sleeps, at first briefly
constexpr int64_t kLongSleepNs = 500'000;        // and, after a few milliseconds, longer
constexpr int64_t kImpatientNs = 5'000'000;

bool more_cores_than(int rank_count) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > rank_count;
}

std::vector<int> pids_of(const NodeSegment& segment, int rank_count) {
    std::vector<int> pids;
    for (int rank = 0; rank < rank_count; ++rank) pids.push_back(segment.rank_control(rank).pid);
    return pids;
}

}  // namespace

// Spin, then yield, then sleep: a peer that is nearly there is met within a cache miss, and one that computes for long gets the
// core.
class LocalGroup::Patience {
public:
    explicit Patience(bool spare_cores) : polls_left_(spare_cores ? kSpinPolls : 0) {}

    void pass(int64_t waited_ns) {
        if (waited_ns < kYieldNs) {
            sched_yield();
        } else {
            std::this_thread::sleep_for(std::chrono::nanoseconds(waited_ns < kImpatientNs ? kShortSleepNs : kLongSleepNs));
        }
    }
    bool spin() {
        if (polls_left_ == 0) return false;
        --polls_left_;
        hwy::Pause();
        return true;
    }

private:
    int polls_left_;
};

LocalGroup::LocalGroup(NodeSegment& segment, const World& world, int64_t timeout_ms)
    : segment_(segment),
      world_(world),
      timeout_ns_(timeout_ms * 1'000'000),
      watch_(pids_of(segment, world.size), world.rank),
      spare_cores_(more_cores_than(world.size)) {}

LocalGroup::~LocalGroup() { segment_.rank_control(world_.rank).state.store(kRankLeft, std::memory_order_release); }

void LocalGroup::begin(const Operation& operation, int64_t place) {
    signature_ = OperationSignature::of(operation, place);
    label_ = operation.label;
    segment_.rank_control(world_.rank).signatures[operation.sequence % 2] = signature_;
}

void LocalGroup::announce() { segment_.rank_control(world_.rank).phase.store(++phase_, std::memory_order_release); }

void LocalGroup::wait_for_all() {
    throw_if_aborted();
    const int64_t start_ns = now_ns();
    int64_t progress_ns = start_ns;
    int64_t next_health_ns = start_ns + kHealthPeriodNs;
    Patience patience(spare_cores_);
    for (int peer = 0; peer < world_.size; ++peer) {
        const std::atomic<uint64_t>& phase = segment_.rank_control(peer).phase;
        const std::atomic<uint64_t>& progress = segment_.rank_control(peer).progress;
        uint64_t seen_progress = progress.load(std::memory_order_relaxed);
        while (phase.load(std::memory_order_acquire) < phase_) {
            if (patience.spin()) continue;
            throw_if_aborted();
            const int64_t now = now_ns();
            if (now >= next_health_ns) {
                if (const uint64_t latest = progress.load(std::memory_order_relaxed); latest != seen_progress) {
                    seen_progress = latest;
                    progress_ns = now;
                }
                check_health(peer, now - start_ns, now - progress_ns);
                next_health_ns = now + kHealthPeriodNs;
            }
            patience.pass(now - start_ns);
        }
        progress_ns = now_ns();
    }
}

void LocalGroup::check_agreement() {
    for (int peer = 0; peer < world_.size; ++peer) {
        const OperationSignature& theirs = segment_.rank_control(peer).signatures[signature_.sequence % 2];
        if (theirs.plan_hash == signature_.plan_hash) [[likely]]
            continue;
        const OperationSignature copy = theirs;
        fail(mismatch_text(world_.rank, signature_, peer, copy));
    }
}

void LocalGroup::check_health(int awaited_peer, int64_t waited_ns, int64_t silent_ns) {
    watch_.refresh();
    for (int peer = 0; peer < world_.size; ++peer) {
        const RankControl& control = segment_.rank_control(peer);
        const bool left = control.state.load(std::memory_order_acquire) == kRankLeft;
        if (!left && !watch_.has_ended(peer)) continue;
        // One that has announced all that is awaited may go: only its absence later is an error.
        if (control.phase.load(std::memory_order_acquire) >= phase_) continue;
        throw_if_aborted();  // it may have gone because of somebody else's failure: that is the cause to report
        fail(failure_text(fmt::format("rank {} (pid {}) {}", peer, watch_.pid(peer), left ? "left the job" : "died"), world_.rank,
                          label_, waited_ns));
    }
    if (silent_ns >= timeout_ns_) {
        fail(failure_text(fmt::format("rank {} (pid {}) made no progress for {:.1f} s", awaited_peer, watch_.pid(awaited_peer),
                                      1e-9 * static_cast<double>(silent_ns)),
                          world_.rank, label_, waited_ns));
    }
}

void LocalGroup::sleep_ns(int64_t duration_ns) {
    const int64_t end_ns = now_ns() + duration_ns;
    for (int64_t left_ns = duration_ns; left_ns > 0; left_ns = end_ns - now_ns()) {
        throw_if_aborted();
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<int64_t>(left_ns, kHealthPeriodNs)));
    }
}

void LocalGroup::throw_if_aborted() {
    SegmentControl& control = segment_.control();
    if (control.abort_state.load(std::memory_order_acquire) == kNotAborted) [[likely]]
        return;
    // The writer needs microseconds; one that died while writing must not hold up the others.
    const Deadline patience = Deadline::after_ms(100);
    while (control.abort_state.load(std::memory_order_acquire) == kAbortBeingWritten && !patience.expired()) sched_yield();
    const bool readable = control.abort_state.load(std::memory_order_acquire) == kAborted;
    throw CommError(fmt::format("{} [rank {} was in {}]", readable ? control.abort_reason : "a peer gave up and died", world_.rank,
                                describe(label_)));
}

void LocalGroup::tell_all(std::string_view text) noexcept {
    SegmentControl& control = segment_.control();
    uint32_t expected = kNotAborted;
    if (!control.abort_state.compare_exchange_strong(expected, kAbortBeingWritten, std::memory_order_acq_rel)) return;
    const std::string_view kept = text.substr(0, SegmentControl::kReasonBytes - 1);
    std::copy(kept.begin(), kept.end(), control.abort_reason);
    control.abort_reason[kept.size()] = '\0';
    control.abort_state.store(kAborted, std::memory_order_release);
}

void LocalGroup::fail(const std::string& text) {
    tell_all(text);
    throw CommError(text);
}

void LocalGroup::note_progress() noexcept { segment_.rank_control(world_.rank).progress.fetch_add(1, std::memory_order_relaxed); }

void LocalGroup::abort(std::string_view reason) noexcept {
    char text[SegmentControl::kReasonBytes];
    const auto result = fmt::format_to_n(text, sizeof text - 1, "rank {} gave up: {}", world_.rank, reason);
    tell_all({text, std::min(result.size, sizeof text - 1)});
}

}  // namespace lockstep
