// How a wait passes its time: polls, then yields, then sleeps. A peer that is nearly there is met within a cache miss, and one that
// computes for long gets the core.
#pragma once

#include <sched.h>

#include <cstdint>
#include <span>

namespace lockstep {

// More ranks than cores where `rank` may run: it has to give its core to peers at once. cores[r] is where rank r may run; an empty
// set counts as shared.
bool shares_cores(std::span<const cpu_set_t> cores, int rank);

class Patience {
public:
    // `shares_cores`: never spins.
    explicit Patience(bool shares_cores) : spin_polls_(shares_cores ? 0 : kSpinPolls) {}

    // Something has come: the next wait begins anew. Without it the waits of one large operation would add up until it sleeps in
    // each.
    void renew() { polls_ = 0, start_ns_ = 0; }

    // Passes a moment. True when it is time to look for aborts, deaths and deadlines.
    bool pass();

private:
    static constexpr int kEagerPolls = 256;  // about 3 us, at full speed
    static constexpr int kSpinPolls = 4096;  // about 100 us
    static constexpr int kLookEveryPolls = 1024;

    const int spin_polls_;
    int polls_ = 0;
    int64_t start_ns_ = 0;  // of yielding
};

}  // namespace lockstep
