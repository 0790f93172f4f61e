// The file behind the node's shared segment: how it is made, how it is checked to fit, and how it reaches the other ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/world.h"
#include "net/socket.h"
#include "net/store.h"

namespace lockstep {

// A nameless file with `total_bytes` zeroed bytes, which this machine has; only its start is reserved, the rest is to be touched by
// the ranks that use it (NodeSegment::join). DeviceError with the bytes needed and free.
FileHandle create_segment_file(size_t total_bytes);

// Local rank 0: makes the file, tells the others through the store where to fetch it, and hands it to each of them. A failure to
// make it is told as well, so that all ranks end with the same error. CommError names ranks that do not come within the time limit.
FileHandle create_and_hand_out(const World& world, Store& store, const std::string& prefix, size_t total_bytes, int64_t timeout_ms);

// The other ranks of the node. CommError when `total_bytes` is not what the leader made: the ranks' plans differ.
FileHandle receive_from_leader(const World& world, Store& store, const std::string& prefix, size_t total_bytes, int64_t timeout_ms);

}  // namespace lockstep
