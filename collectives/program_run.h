// One program of one rank, ready to be run over a Transport again and again. Everything is allocated when it is made: transfers,
// scratch memory, the layout. While it runs, advance() does what has become possible and never waits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/kernels/wire_kernels.h"
#include "collectives/program_layout.h"
#include "collectives/schedule/schedule.h"
#include "collectives/transport.h"
#include "core/tensor.h"

namespace lockstep {

class ProgramRun {
public:
    // `ranks`: the world's rank of each rank of the program. `eager_bytes`: what may go to a peer unasked (program_layout.h).
    ProgramRun(schedule::Program program, std::span<const int> ranks, const ElementFormat& format, size_t eager_bytes);
    ProgramRun(const ProgramRun&) = delete;
    ProgramRun& operator=(const ProgramRun&) = delete;

    // The world's ranks with which this one exchanges anything, ascending.
    const std::vector<int>& neighbours() const { return neighbours_; }
    size_t eager_bytes_per_peer() const { return layout_.eager_bytes_per_peer; }

    // Begins on `data`, which belongs to the run until it is finished. Tags of the transfers are `tag` + lane and channel:
    // tag .. tag + 4 * lanes. The run must be finished or new.
    void start(Transport& transport, std::byte* data, uint64_t tag, int32_t urgency);
    // Posts, converts and sums what can be; at most about `element_budget` elements, which is reduced. True when it got on.
    bool advance(Transport& transport, int64_t& element_budget);
    bool finished() const;

    // What converting for the wire did to this run's values; exact wire: zeros.
    const wire_kernels::Rounding& rounding() const { return rounding_; }
    uint64_t sent_bytes() const { return sent_bytes_; }  // payload of one whole run

private:
    struct Message {  // one move
        Transfer eager;
        Transfer rest;
        Transfer credit;  // of a send: to come; of a receive: to give
        bool rest_posted = false;
        int64_t unpacked = 0;  // receives in place with conversion: elements that stand in the buffer
        bool complete() const { return eager.complete() && rest.complete(); }
        size_t moved() const { return eager.moved + rest.moved; }
    };
    struct LaneState {
        uint32_t round = 0;
        uint32_t next_post = 0;  // index into layout_.posts
        int64_t summed = 0;      // elements of the round's sum range
        bool done = false;
    };

    std::span<const schedule::Round> rounds_of(size_t lane) const { return program_.rounds_of(program_.lanes[lane]); }
    void enter_round(Transport& transport, size_t lane);
    void post_receives(Transport& transport, size_t lane);
    void post_sends(Transport& transport, const schedule::Round& round);
    void post_rest(Transport& transport, Message& message);
    bool advance_lane(Transport& transport, size_t lane, int64_t& element_budget, bool& got_on);
    bool advance_round(Transport& transport, size_t lane, int64_t& element_budget, bool& got_on);
    bool advance_move(Transport& transport, uint32_t move_index, int64_t& element_budget, bool& got_on);
    bool advance_sum(LaneState& state, const schedule::Round& round, int64_t& element_budget, bool& got_on);
    int64_t summable_until(const schedule::Round& round) const;
    void sum_block(const schedule::Round& round, int64_t first, int64_t count);
    int64_t elements_moved(const Message& message) const;

    const schedule::Program program_;
    const ElementFormat format_;
    const ProgramLayout layout_;
    std::vector<int> neighbours_;
    Buffer scratch_;
    std::vector<Message> messages_;  // as program_.moves
    std::vector<LaneState> lanes_;
    std::vector<float> unpacked_operands_;  // one block for each operand of the longest sum
    std::vector<const void*> inputs_;
    std::byte* data_ = nullptr;
    std::byte credit_byte_{1};
    wire_kernels::Rounding rounding_;
    uint64_t sent_bytes_ = 0;
};

}  // namespace lockstep
