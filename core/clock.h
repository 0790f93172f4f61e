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

// Time in which this process could see what its peers do: by it their silence is judged. A gap between two readings longer than
// `longest_gap_ns` was an absence of this process itself (stopped, starved, its machine suspended, perhaps with the whole job) and
// counts for that much only; so read it several times in that time. Monotonic; begins at `start_ns`. One thread at a time.
class AwakeClock {
public:
    explicit AwakeClock(int64_t longest_gap_ns, int64_t start_ns = now_ns())
        : longest_gap_ns_(longest_gap_ns), last_ns_(start_ns) {}
    int64_t read(int64_t now = now_ns());
    int64_t left_out_ns() const { return left_out_ns_; }  // so far

private:
    int64_t longest_gap_ns_;
    int64_t last_ns_;
    int64_t left_out_ns_ = 0;
};

}  // namespace lockstep
