// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//
// Randomness is a pure function of its key, never of a shared stream: (seed, purpose, epoch, sample) for data, (seed, purpose,
// tensor name) for initial weights. Loader threads, world size and restarts change nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

// One block of the generator: 128 random bits for (key, counter).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A short stream of numbers that belongs to one key. Cheap to make: make one for each sample or tensor.
class RandomStream {
public:
    // `purpose` separates uses ("augment", "shuffle", "init", "dropout"); `a` and `b` are e.g. epoch and sample.
    RandomStream(uint64_t seed, std::string_view purpose, uint64_t a = 0, uint64_t b = 0);

    uint32_t next_u32();
    uint64_t next_u64();
    float uniform();                 // [0, 1), 24 bits
    double uniform_double();         // [0, 1), 53 bits
    uint64_t below(uint64_t bound);  // unbiased integer in [0, bound); bound > 0
    float normal();                  // mean 0, standard deviation 1 (Box-Muller)

private:
    std::array<uint32_t, 2> key_;
    std::array<uint32_t, 4> counter_;
    std::array<uint32_t, 4> block_{};
    int used_ = 4;
    bool has_spare_ = false;
    float spare_ = 0.0F;
};

}  // namespace lockstep
