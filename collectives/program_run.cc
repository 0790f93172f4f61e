#include "collectives/program_run.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/kernels/reduce_kernels.h"
#include "core/error.h"

namespace lockstep {

namespace {

using schedule::kInPlace;
using schedule::Move;
using schedule::MoveKind;
using schedule::Range;
using schedule::Round;

constexpr int64_t kBlockCount = 2048;        // elements summed at a time: the blocks of all operands stay in the nearest cache
constexpr int64_t kPieceCount = 64 << 10;    // elements of a piece that is converted: 128 KiB on the wire
constexpr int64_t kWorthSumming = 4096;      // elements; a shorter piece waits for more, unless it is the last
constexpr int32_t kCreditUrgency = 1 << 20;  // before all data: somebody waits for it

enum Channel : uint64_t { kData = 0, kCredit = 1 };

bool overlap(const Range& left, const Range& right) { return left.first < right.last && right.first < left.last; }

}  // namespace

ProgramRun::ProgramRun(schedule::Program program, std::span<const int> ranks, const ElementFormat& format, const Options& options)
    : program_(std::move(program)),
      format_(format),
      layout_(lay_out(program_, format_, options.eager_bytes)),
      scratch_(HeapPool().allocate(layout_.scratch_bytes)),
      messages_(program_.moves.size()),
      lanes_(program_.lanes.size()) {
    for (const int32_t peer : layout_.neighbours) neighbours_.push_back(ranks[static_cast<size_t>(peer)]);
    std::sort(neighbours_.begin(), neighbours_.end());
    lay_pieces();
    for (size_t index = 0; index < messages_.size(); ++index) {
        const Move& move = program_.moves[index];
        const MoveLayout& place = layout_.moves[index];
        Message& message = messages_[index];
        const int peer = ranks[static_cast<size_t>(move.peer)];
        for (Transfer& piece : message.pieces) piece.peer = peer;
        message.credit.peer = peer;
        message.credit.bytes = place.rest_bytes > 0 ? 1 : 0;
        message.credit.data = &credit_byte_;
        message.credit.urgency = kCreditUrgency;
        if (move.kind == MoveKind::send) sent_bytes_ += place.eager_bytes + place.rest_bytes;
    }
    size_t most_operands = 0;
    for (const Round& round : program_.rounds) most_operands = std::max<size_t>(most_operands, round.operand_count);
    check(most_operands == 0 || format_.value != DataType::u8, "bytes are not summed");
    inputs_.resize(most_operands);
    if (format_.converts()) unpacked_operands_.resize(most_operands * static_cast<size_t>(kBlockCount));
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        const auto rounds = rounds_of(lane);
        auto last = static_cast<uint32_t>(rounds.size());
        while (last > 0 && rounds[last - 1].operand_count == 0) --last;
        const bool rounds_some = options.rounds_results && format_.converts() && last > 0;
        rounded_round_.push_back(rounds_some ? last - 1 : static_cast<uint32_t>(rounds.size()));
    }
}

// Both sides of a message cut it alike: by its two parts' lengths and the format.
void ProgramRun::lay_pieces() {
    const size_t longest = format_.converts() ? static_cast<size_t>(kPieceCount) * format_.wire_bytes() : SIZE_MAX;
    const auto pieces_of = [&](size_t bytes) { return bytes / longest + (bytes % longest > 0 ? 1 : 0); };
    size_t count = 0;
    for (const MoveLayout& place : layout_.moves) count += pieces_of(place.eager_bytes) + pieces_of(place.rest_bytes);
    pieces_.resize(count);
    size_t next = 0;
    for (size_t index = 0; index < messages_.size(); ++index) {
        const MoveLayout& place = layout_.moves[index];
        const size_t first = next;
        for (const size_t part_bytes : {place.eager_bytes, place.rest_bytes}) {
            for (size_t done = 0; done < part_bytes; done += pieces_[next++].bytes)
                pieces_[next].bytes = std::min(longest, part_bytes - done);
        }
        messages_[index].pieces = std::span(pieces_).subspan(first, next - first);
        messages_[index].eager_pieces = pieces_of(place.eager_bytes);
    }
}

void ProgramRun::start(Transport& transport, std::byte* data, uint64_t tag, int32_t urgency) {
    check(finished() || data_ == nullptr, "a run is started again only when it is finished");
    data_ = data;
    rounding_ = {};
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        lanes_[lane] = {.next_post = layout_.lane_first_post[lane]};
        for (const Round& round : rounds_of(lane)) {
            for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
                place_pieces(index, tag + 4 * lane, urgency);
                Message& message = messages_[index];
                const bool wants_credit = program_.moves[index].kind == MoveKind::send && message.credit.bytes > 0;
                if (wants_credit) transport.post_receive(message.credit);
            }
        }
    }
    for (size_t lane = 0; lane < lanes_.size(); ++lane) enter_round(transport, lane);
}

void ProgramRun::place_pieces(uint32_t move_index, uint64_t tag, int32_t urgency) {
    Message& message = messages_[move_index];
    const int64_t in_buffer = program_.moves[move_index].range.first * static_cast<int64_t>(format_.value_bytes());
    const int64_t in_scratch = layout_.moves[move_index].scratch_offset;
    std::byte* place =
        in_scratch == MoveLayout::kInBuffer ? data_ + in_buffer : static_cast<std::byte*>(scratch_.data()) + in_scratch;
    for (Transfer& piece : message.pieces) {
        piece.tag = tag + kData;
        piece.urgency = urgency;
        piece.moved = 0;
        piece.data = place;
        place += piece.bytes;
    }
    message.posted = 0;
    message.converted = 0;
    message.credit.tag = tag + kCredit;
    message.credit.moved = 0;
}

bool ProgramRun::finished() const {
    return std::all_of(lanes_.begin(), lanes_.end(), [](const LaneState& lane) { return lane.done; }) &&
           std::all_of(messages_.begin(), messages_.end(), [](const Message& message) { return message.credit.complete(); });
}

void ProgramRun::enter_round(Transport& transport, size_t lane) {
    LaneState& state = lanes_[lane];
    state.summed = 0;
    if (state.round == rounds_of(lane).size()) {
        state.done = true;
        return;
    }
    post_receives(transport, lane);
    const Round& round = rounds_of(lane)[state.round];
    for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
        if (program_.moves[index].kind == MoveKind::send) post_sends(transport, index);
    }
}

void ProgramRun::post_receives(Transport& transport, size_t lane) {
    LaneState& state = lanes_[lane];
    for (; state.next_post < layout_.lane_first_post[lane + 1]; ++state.next_post) {
        const uint32_t index = layout_.posts[state.next_post];
        if (layout_.moves[index].post_round > state.round) return;
        Message& message = messages_[index];
        for (Transfer& piece : message.pieces) transport.post_receive(piece);
        if (message.credit.bytes > 0) transport.post_send(message.credit);
    }
}

// The pieces that may go: unasked or with credit, and standing as the wire wants them.
void ProgramRun::post_sends(Transport& transport, uint32_t move_index) {
    Message& message = messages_[move_index];
    const size_t may_go = message.credit.complete() ? message.pieces.size() : message.eager_pieces;
    while (message.posted < may_go) {
        Transfer& piece = message.pieces[message.posted];
        const auto end_bytes = static_cast<int64_t>(piece.data + piece.bytes - message.pieces[0].data);
        if (format_.converts() && elements_packed(move_index) * static_cast<int64_t>(format_.wire_bytes()) < end_bytes) return;
        ++message.posted;
        transport.post_send(piece);
    }
}

bool ProgramRun::advance(Transport& transport, int64_t& element_budget) {
    bool got_on = false;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        while (!lanes_[lane].done && advance_lane(transport, lane, element_budget, got_on)) {
        }
    }
    return got_on;
}

// True when the lane may get on at once: the caller asks again. `got_on` also when only the budget stopped it.
bool ProgramRun::advance_lane(Transport& transport, size_t lane, int64_t& element_budget, bool& got_on) {
    bool moved = false;
    const bool complete = advance_round(transport, lane, element_budget, moved);
    if (complete) {
        ++lanes_[lane].round;
        enter_round(transport, lane);
    }
    got_on = got_on || moved || complete;
    return complete || (moved && element_budget > 0);
}

// True when the round is complete: all its sends are with the kernel, all receives have come, the sum stands.
bool ProgramRun::advance_round(Transport& transport, size_t lane, int64_t& element_budget, bool& got_on) {
    const Round& round = rounds_of(lane)[lanes_[lane].round];
    bool complete = true;
    for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
        complete = advance_move(transport, index, element_budget, got_on) && complete;
    }
    return advance_sum(lane, element_budget, got_on) && complete;
}

bool ProgramRun::advance_move(Transport& transport, uint32_t move_index, int64_t& element_budget, bool& got_on) {
    const Message& message = messages_[move_index];
    const Move& move = program_.moves[move_index];
    if (move.kind == MoveKind::send) {
        if (format_.converts()) pack_some(move_index, element_budget, got_on);
        post_sends(transport, move_index);
        return message.complete();
    }
    if (move.slot != kInPlace || !format_.converts()) return message.complete();
    unpack_some(move_index, element_budget, got_on);
    return message.converted == move.range.size();
}

void ProgramRun::pack_some(uint32_t move_index, int64_t& element_budget, bool& got_on) {
    Message& message = messages_[move_index];
    const Move& move = program_.moves[move_index];
    if (layout_.moves[move_index].converted_by != move_index) return;
    const int64_t count = std::min(move.range.size() - message.converted, element_budget);
    if (count <= 0) return;
    std::byte* const wire = message.pieces[0].data + static_cast<size_t>(message.converted) * format_.wire_bytes();
    rounding_.merge(wire_kernels::pack(format_.wire, values(move.range) + message.converted, wire, static_cast<size_t>(count)));
    message.converted += count;
    element_budget -= count;
    got_on = true;
}

void ProgramRun::unpack_some(uint32_t move_index, int64_t& element_budget, bool& got_on) {
    Message& message = messages_[move_index];
    const int64_t count = std::min(elements_moved(message) - message.converted, element_budget);
    if (count <= 0) return;
    const std::byte* const wire = message.pieces[0].data + static_cast<size_t>(message.converted) * format_.wire_bytes();
    wire_kernels::unpack(format_.wire, wire, values(program_.moves[move_index].range) + message.converted,
                         static_cast<size_t>(count));
    message.converted += count;
    element_budget -= count;
    got_on = true;
}

bool ProgramRun::advance_sum(size_t lane, int64_t& element_budget, bool& got_on) {
    LaneState& state = lanes_[lane];
    const Round& round = rounds_of(lane)[state.round];
    const int64_t total = round.operand_count == 0 ? 0 : round.sum_range.size();
    const int64_t ready = total == 0 ? 0 : summable_until(round) - round.sum_range.first;
    if (ready < total && ready - state.summed < kWorthSumming) return false;
    while (state.summed < ready && element_budget > 0) {
        const int64_t first = round.sum_range.first + state.summed;
        const int64_t count = std::min(kBlockCount, ready - state.summed);
        sum_block(round, first, count);
        if (state.round == rounded_round_[lane])
            wire_kernels::round(format_.wire, values({first, first + count}), static_cast<size_t>(count));
        state.summed += count;
        element_budget -= count;
        got_on = true;
    }
    return state.summed == total;
}

// The sum may be written up to here: the operands have arrived, and what it overwrites has been sent or converted. Positions before
// a message's range do not concern it.
int64_t ProgramRun::summable_until(const Round& round) const {
    int64_t until = round.sum_range.last;
    const auto operands = program_.operands_of(round);
    for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
        const Move& move = program_.moves[index];
        const Message& message = messages_[index];
        if (message.complete() || !overlap(move.range, round.sum_range)) continue;
        if (move.kind == MoveKind::send) {
            until = std::min(until, move.range.first + (format_.converts() ? elements_packed(index) : elements_moved(message)));
        } else if (std::find(operands.begin(), operands.end(), move.slot) != operands.end()) {
            until = std::min(until, move.range.first + elements_moved(message));
        }
    }
    return std::max(until, round.sum_range.first);
}

void ProgramRun::sum_block(const Round& round, int64_t first, int64_t count) {
    const auto operands = program_.operands_of(round);
    const auto block_count = static_cast<size_t>(count);
    std::byte* const output = data_ + first * static_cast<int64_t>(format_.value_bytes());
    for (size_t index = 0; index < operands.size(); ++index) {
        if (operands[index] == kInPlace) {
            inputs_[index] = output;
            continue;
        }
        const int64_t offset =
            layout_.slot_offsets[static_cast<size_t>(operands[index])] + first * static_cast<int64_t>(format_.wire_bytes());
        const std::byte* const operand = static_cast<const std::byte*>(scratch_.data()) + offset;
        if (!format_.converts()) {
            inputs_[index] = operand;
            continue;
        }
        float* const block = unpacked_operands_.data() + index * static_cast<size_t>(kBlockCount);
        wire_kernels::unpack(format_.wire, operand, block, block_count);
        inputs_[index] = block;
    }
    void* const outputs[] = {output};
    reduce_kernels::sum(format_.value, outputs, std::span(inputs_).first(operands.size()), block_count);
}

// A later piece may be ahead of an earlier one.
size_t ProgramRun::Message::moved() const {
    size_t bytes = 0;
    for (const Transfer& piece : pieces) {
        bytes += piece.moved;
        if (!piece.complete()) break;
    }
    return bytes;
}

int64_t ProgramRun::elements_moved(const Message& message) const {
    return static_cast<int64_t>(message.moved() / format_.wire_bytes());
}

}  // namespace lockstep
