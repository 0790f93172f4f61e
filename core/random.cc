#include "core/random.h"

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/hash.h"

namespace lockstep {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
    constexpr uint64_t kMultiplier0 = 0xD2511F53;
    constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
    constexpr uint32_t kWeyl0 = 0x9E3779B9;
    constexpr uint32_t kWeyl1 = 0xBB67AE85;
    for (int round = 0; round < 10; ++round) {
        const uint64_t product0 = kMultiplier0 * counter[0];
        const uint64_t product1 = kMultiplier1 * counter[2];
        counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
                   static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
        key[0] += kWeyl0;
        key[1] += kWeyl1;
    }
    return counter;
}

RandomStream::RandomStream(uint64_t seed, std::string_view purpose, uint64_t a, uint64_t b) {
    // The whole key is hashed to 160 bits: 64 select the Philox key, 96 the upper counter words; the lowest word counts blocks.
    const uint64_t words[3] = {seed, a, b};
    const uint64_t low = hash_bytes(words, sizeof words, hash_text(purpose));
    const uint64_t high = hash_bytes(words, sizeof words, ~low);
    const uint64_t extra = hash_bytes(words, sizeof words, high ^ 0x5851F42D4C957F2D);
    key_ = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32)};
    counter_ = {0, static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32), static_cast<uint32_t>(extra)};
}

uint32_t RandomStream::next_u32() {
    if (used_ == 4) {
        block_ = philox4x32(counter_, key_);
        ++counter_[0];
        used_ = 0;
    }
    return block_[static_cast<size_t>(used_++)];
}

uint64_t RandomStream::next_u64() {
    const uint64_t low = next_u32();
    return low | (uint64_t{next_u32()} << 32);
}

float RandomStream::uniform() { return static_cast<float>(next_u32() >> 8) * 0x1.0p-24F; }

double RandomStream::uniform_double() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }

uint64_t RandomStream::below(uint64_t bound) {
    check(bound > 0, "RandomStream::below needs a positive bound");
    // Rejection of the incomplete last range keeps the result unbiased.
    const uint64_t threshold = (0 - bound) % bound;
    while (true) {
        const uint64_t value = next_u64();
        if (value >= threshold) return value % bound;
    }
}

float RandomStream::normal() {
    if (has_spare_) {
        has_spare_ = false;
        return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_double()));
    const double angle = 2.0 * std::numbers::pi * uniform_double();
    spare_ = static_cast<float>(radius * std::sin(angle));
    has_spare_ = true;
    return static_cast<float>(radius * std::cos(angle));
}

}  // namespace lockstep
