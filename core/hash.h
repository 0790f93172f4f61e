// XXH3 (64 bit): plan hashes, checksums of files and weights. Not for secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed = 0);
inline uint64_t hash_text(std::string_view text, uint64_t seed = 0) { return hash_bytes(text.data(), text.size(), seed); }
std::string hash_hex(uint64_t hash);  // 16 lower-case digits

}  // namespace lockstep
