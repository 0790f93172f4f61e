#include "collectives/shared_memory/patience.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/clock.h"
#include "hwy/cache_control.h"

namespace lockstep {

namespace {

constexpr int64_t kYieldNs = 500'000;      // sleeping costs about 50 us: not before that is little
constexpr int64_t kShortSleepNs = 50'000;  // at first
constexpr int64_t kLongSleepNs = 500'000;  // after kImpatientNs
constexpr int64_t kImpatientNs = 5'000'000;

}  // namespace

bool shares_cores(std::span<const cpu_set_t> cores, int rank) {
    const cpu_set_t& mine = cores[static_cast<size_t>(rank)];
    const auto rivals = std::ranges::count_if(cores, [&](const cpu_set_t& theirs) {
        cpu_set_t common;
        CPU_AND(&common, &mine, &theirs);
        return CPU_COUNT(&common) > 0;
    });
    return rivals == 0 || rivals > CPU_COUNT(&mine);
}

bool Patience::pass() {
    if (polls_ < spin_polls_) {
        if (++polls_ > kEagerPolls) hwy::Pause();
        return polls_ % kLookEveryPolls == 0;
    }
    const int64_t now = now_ns();
    if (start_ns_ == 0) start_ns_ = now;
    const int64_t waited_ns = now - start_ns_;
    if (waited_ns < kYieldNs) {
        sched_yield();
        return ++polls_ % 64 == 0;
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(waited_ns < kImpatientNs ? kShortSleepNs : kLongSleepNs));
    return true;
}

}  // namespace lockstep
