// Where all ranks of a contestant wait for each other before each timed call: a counter in memory that all processes map, the same
// for every library, so no library's own barrier decides when its clock starts. Where each rank has a core, the last to come names
// an instant a moment ahead, and all leave when the clock says so: within one reading of it, not one cache miss after another.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace lockstep::bench {

class StartLine {
public:
    // `path`: a file that the ranks share; made by the first. DeviceError when it cannot be mapped.
    StartLine(const std::string& path, int rank_count, bool yields);
    StartLine(const StartLine&) = delete;
    StartLine& operator=(const StartLine&) = delete;
    ~StartLine();

    void wait();  // CommError when a rank does not come for a minute

private:
    struct Shared {
        alignas(128) std::atomic<uint64_t> arrivals;  // ever; zero in a new file
        alignas(128) std::atomic<int64_t> start_ns;   // of the round that was complete last
    };
    Shared* shared_ = nullptr;
    const uint64_t rank_count_;
    const bool yields_;
    uint64_t rounds_ = 0;
    int64_t start_ns_ = 0;  // of the last round
};

}  // namespace lockstep::bench
