// Time. `now_ns` is monotonic and shared by all processes of a node, so spans of different local ranks compare directly.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

int64_t now_ns();               // CLOCK_MONOTONIC
double wall_clock_s();          // seconds since the epoch, for humans and file stamps
std::string wall_clock_text();  // "2030-01-31T12:34:56Z"

// From now on both wall clocks of this process are off by so much: what a wrong clock does, for drills. Any thread.
void skew_wall_clock(double seconds);

// A point in time by which something must have made progress. Copyable value; checked in wait loops.
class Deadline {
public:
    static Deadline after_ms(int64_t timeout_ms);
    static Deadline never();
    bool expired() const { return now_ns() >= at_ns_; }
    int64_t remaining_ms() const;  // 0 when expired, at most INT32_MAX: fits poll()

private:
    explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}
    int64_t at_ns_;
};

}  // namespace lockstep
