// What has to be worked out once before a program runs: where each message lies, when each receive may be posted, and how much of a
// message may be sent before the receiver is known to expect it. A pure function of the program.
//
// Why credit: a message that comes before its receive is posted fills the receiver's memory, and a receiver that stops reading a
// connection because of it may hold up the very message it waits for. So only the first `eager_bytes` of an operation go to a peer
// unasked; the rest of a message is sent when the peer has posted its receive and said so with one byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "core/tensor.h"

namespace lockstep {

// Elements in memory and on the wire.
struct ElementFormat {
    DataType value = DataType::f32;  // f32, bf16 or f16, which can be summed, or u8 for bytes that are only copied
    DataType wire = DataType::f32;   // equal to `value`, or bf16 or f16 for f32 values
    size_t value_bytes() const { return bytes_per_element(value); }
    size_t wire_bytes() const { return bytes_per_element(wire); }
    bool converts() const { return value != wire; }
    bool operator==(const ElementFormat&) const = default;
};

struct MoveLayout {
    static constexpr int64_t kInBuffer = -1;

    size_t eager_bytes = 0;              // the front of the message, sent unasked
    size_t rest_bytes = 0;               // sent on credit
    int64_t scratch_offset = kInBuffer;  // bytes; where the message lies in the scratch memory
    uint32_t post_round = 0;             // receives: first round of the lane at whose start it may be posted
    uint32_t converted_by = 0;           // sends: the move that converts this range; an earlier one of the round, or itself
};

struct ProgramLayout {
    std::vector<MoveLayout> moves;          // as in the program
    std::vector<uint32_t> posts;            // receives as indices of moves, lane by lane in the order of posting
    std::vector<uint32_t> lane_first_post;  // one more entry than lanes
    std::vector<int64_t> slot_offsets;      // bytes in the scratch memory where element 0 of a slot would lie; may be negative
    std::vector<int32_t> neighbours;        // with whom this rank exchanges anything, ascending
    size_t scratch_bytes = 0;
    size_t eager_bytes_per_peer = 0;  // the most that goes to one peer unasked
};

// `eager_bytes`: per operation and peer; shared among the lanes, so that both sides reckon alike.
ProgramLayout lay_out(const schedule::Program& program, const ElementFormat& format, size_t eager_bytes);

}  // namespace lockstep
