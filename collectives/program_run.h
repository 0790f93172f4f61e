// One program of one rank, ready to be run over a Transport again and again. Everything is allocated when it is made: transfers,
// scratch memory, the layout. While it runs, advance() does what has become possible and never waits.
#pragma once

#include <algorithm>
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
    struct Options {
        size_t eager_bytes = 0;  // what may go to a peer unasked (program_layout.h)
        // The last sums of every lane are rounded to the wire's type, as if they were sent.
        bool rounds_results = false;
    };

    // `ranks`: the world's rank of each rank of the program.
    ProgramRun(schedule::Program program, std::span<const int> ranks, const ElementFormat& format, const Options& options);
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
    // One move. Its bytes travel in pieces, each a transfer, in order: what is sent unasked, and the rest on credit. Values that
    // are converted for the wire are cut further, so that a piece is on its way while the next one is converted.
    struct Message {
        std::span<Transfer> pieces;
        size_t eager_pieces = 0;
        size_t posted = 0;      // sends: pieces handed to the transport
        int64_t converted = 0;  // elements, from the front: sends packed for the wire, receives in place unpacked from it
        Transfer credit;        // of a send: to come; of a receive: to give
        bool complete() const {
            return std::all_of(pieces.begin(), pieces.end(), [](const Transfer& piece) { return piece.complete(); });
        }
        size_t moved() const;  // bytes, from the front
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
    void post_sends(Transport& transport, uint32_t move_index);
    bool advance_lane(Transport& transport, size_t lane, int64_t& element_budget, bool& got_on);
    bool advance_round(Transport& transport, size_t lane, int64_t& element_budget, bool& got_on);
    bool advance_move(Transport& transport, uint32_t move_index, int64_t& element_budget, bool& got_on);
    void pack_some(uint32_t move_index, int64_t& element_budget, bool& got_on);
    void unpack_some(uint32_t move_index, int64_t& element_budget, bool& got_on);
    bool advance_sum(size_t lane, int64_t& element_budget, bool& got_on);
    int64_t summable_until(const schedule::Round& round) const;
    void sum_block(const schedule::Round& round, int64_t first, int64_t count);
    void lay_pieces();
    void place_pieces(uint32_t move_index, uint64_t tag, int32_t urgency);
    int64_t elements_moved(const Message& message) const;
    int64_t elements_packed(uint32_t move_index) const { return messages_[layout_.moves[move_index].converted_by].converted; }
    float* values(const schedule::Range& range) const { return reinterpret_cast<float*>(data_) + range.first; }

    const schedule::Program program_;
    const ElementFormat format_;
    const ProgramLayout layout_;
    std::vector<int> neighbours_;
    Buffer scratch_;
    std::vector<Transfer> pieces_;   // of all messages
    std::vector<Message> messages_;  // as program_.moves
    std::vector<LaneState> lanes_;
    std::vector<uint32_t> rounded_round_;   // by lane: whose sums are rounded; none: as many as there are rounds
    std::vector<float> unpacked_operands_;  // one block for each operand of the longest sum
    std::vector<const void*> inputs_;
    std::byte* data_ = nullptr;
    std::byte credit_byte_{1};
    wire_kernels::Rounding rounding_;
    uint64_t sent_bytes_ = 0;
};

}  // namespace lockstep
