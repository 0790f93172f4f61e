// What client and server of the store say to each other. A client opens with
//   hello:  u32 magic, u32 version, text job id, text nonce   -> u8 ok, text nonce, text proof | u8 refused, text reason
//   proof:  text proof                                        -> u8 ok | u8 refused, text reason
// Each proof is a hash, keyed with the job's secret, of all that was said before it: both sides show that they know the secret and
// neither tells it. Then the client asks one thing at a time, each answered in order:
//   set key value | get key | wait key timeout_ms | add key delta | compare_set key has_expected expected desired | remove key |
//   append list value | append_when_gone list value
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::store_protocol {

inline constexpr uint32_t kMagic = 0x4C4B5354;  // "TSKL"
inline constexpr uint32_t kVersion = 2;
inline constexpr size_t kMaxHelloBytes = 4096;
inline constexpr size_t kNonceBytes = 32;

enum class Request : uint8_t { set = 1, get, wait, add, compare_set, remove, append, append_when_gone };
enum class Status : uint8_t { ok = 1, absent, refused };  // refused: a text says why

}  // namespace lockstep::store_protocol
