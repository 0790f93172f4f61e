#include "core/clock.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <limits>

namespace lockstep {

namespace {

std::atomic<double> wall_clock_skew_s{0.0};

}  // namespace

int64_t now_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

double wall_clock_s() {
    timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec) + wall_clock_skew_s;
}

std::string wall_clock_text() {
    const auto seconds = static_cast<std::time_t>(wall_clock_s());
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char text[32];
    const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return {text, length};
}

void skew_wall_clock(double seconds) { wall_clock_skew_s = seconds; }

Deadline Deadline::after_ms(int64_t timeout_ms) { return Deadline(now_ns() + timeout_ms * 1'000'000); }

Deadline Deadline::never() { return Deadline(std::numeric_limits<int64_t>::max()); }

int64_t Deadline::remaining_ms() const {
    const int64_t left_ms = (at_ns_ - now_ns()) / 1'000'000;
    return std::clamp<int64_t>(left_ms, 0, std::numeric_limits<int32_t>::max());
}

int64_t AwakeClock::read(int64_t now) {
    left_out_ns_ += std::max<int64_t>(now - last_ns_ - longest_gap_ns_, 0);
    last_ns_ = now;
    return now - left_out_ns_;
}

}  // namespace lockstep
