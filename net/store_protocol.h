// What client and server of the store say to each other. A client opens with
//   hello:  u32 magic, u32 version, text job id            -> u8 status [, text reason]
// and then asks one thing at a time, each answered in order:
//   set key value | get key | wait key timeout_ms | add key delta | compare_set key has_expected expected desired | remove key
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::store_protocol {

inline constexpr uint32_t kMagic = 0x4C4B5354;  // "TSKL"
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kMaxHelloBytes = 4096;

enum class Request : uint8_t { set = 1, get, wait, add, compare_set, remove };
enum class Status : uint8_t { ok = 1, absent, refused };  // refused: a text says why

}  // namespace lockstep::store_protocol
