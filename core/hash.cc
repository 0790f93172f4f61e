#include "core/hash.h"

#include <xxhash.h>

#include <fmt/format.h>

namespace lockstep {

uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed) { return XXH3_64bits_withSeed(data, bytes, seed); }

std::string hash_hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace lockstep
