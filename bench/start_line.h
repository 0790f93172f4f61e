// Where all ranks of a contestant wait for each other before each timed call: a counter in memory that all processes map, the same
// for every library, so no library's own barrier decides when its clock starts. Ranks leave within about a tenth of a microsecond
// when each has a core.
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
    };
    Shared* shared_ = nullptr;
    const uint64_t rank_count_;
    const bool yields_;
    uint64_t rounds_ = 0;
};

}  // namespace lockstep::bench
