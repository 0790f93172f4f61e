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
constexpr int64_t kWorthSumming = 4096;      // elements; a shorter piece waits for more, unless it is the last
constexpr int32_t kCreditUrgency = 1 << 20;  // before all data: somebody waits for it

enum Channel : uint64_t { kData = 0, kCredit = 1 };

bool overlap(const Range& left, const Range& right) { return left.first < right.last && right.first < left.last; }

}  // namespace

ProgramRun::ProgramRun(schedule::Program program, std::span<const int> ranks, const ElementFormat& format, size_t eager_bytes)
    : program_(std::move(program)),
      format_(format),
      layout_(lay_out(program_, format_, eager_bytes)),
      scratch_(HeapPool().allocate(layout_.scratch_bytes)),
      messages_(program_.moves.size()),
      lanes_(program_.lanes.size()) {
    for (const int32_t peer : layout_.neighbours) neighbours_.push_back(ranks[static_cast<size_t>(peer)]);
    std::sort(neighbours_.begin(), neighbours_.end());
    for (size_t index = 0; index < messages_.size(); ++index) {
        const Move& move = program_.moves[index];
        const MoveLayout& place = layout_.moves[index];
        Message& message = messages_[index];
        for (Transfer* transfer : {&message.eager, &message.rest, &message.credit}) {
            transfer->peer = ranks[static_cast<size_t>(move.peer)];
        }
        message.eager.bytes = place.eager_bytes;
        message.rest.bytes = place.rest_bytes;
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
}

void ProgramRun::start(Transport& transport, std::byte* data, uint64_t tag, int32_t urgency) {
    check(finished() || data_ == nullptr, "a run is started again only when it is finished");
    data_ = data;
    rounding_ = {};
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        lanes_[lane] = {.next_post = layout_.lane_first_post[lane]};
        for (const Round& round : rounds_of(lane)) {
            for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
                Message& message = messages_[index];
                const uint64_t lane_tag = tag + 4 * lane;
                message.eager.tag = message.rest.tag = lane_tag + kData;
                message.credit.tag = lane_tag + kCredit;
                message.eager.urgency = message.rest.urgency = urgency;
                message.eager.moved = message.rest.moved = message.credit.moved = 0;
                message.rest_posted = false;
                message.unpacked = 0;
                const int64_t in_buffer = program_.moves[index].range.first * static_cast<int64_t>(format_.value_bytes());
                const int64_t in_scratch = layout_.moves[index].scratch_offset;
                message.eager.data =
                    in_scratch == MoveLayout::kInBuffer ? data + in_buffer : static_cast<std::byte*>(scratch_.data()) + in_scratch;
                message.rest.data = message.eager.data + message.eager.bytes;
                const bool wants_credit = program_.moves[index].kind == MoveKind::send && message.rest.bytes > 0;
                if (wants_credit) transport.post_receive(message.credit);
            }
        }
    }
    for (size_t lane = 0; lane < lanes_.size(); ++lane) enter_round(transport, lane);
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
    post_sends(transport, rounds_of(lane)[state.round]);
}

void ProgramRun::post_receives(Transport& transport, size_t lane) {
    LaneState& state = lanes_[lane];
    for (; state.next_post < layout_.lane_first_post[lane + 1]; ++state.next_post) {
        const uint32_t index = layout_.posts[state.next_post];
        if (layout_.moves[index].post_round > state.round) return;
        Message& message = messages_[index];
        if (message.eager.bytes > 0) transport.post_receive(message.eager);
        if (message.rest.bytes == 0) continue;
        transport.post_receive(message.rest);
        transport.post_send(message.credit);
    }
}

void ProgramRun::post_sends(Transport& transport, const Round& round) {
    for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
        const Move& move = program_.moves[index];
        if (move.kind != MoveKind::send) continue;
        Message& message = messages_[index];
        if (format_.converts() && !layout_.moves[index].packed_before) {
            rounding_.merge(wire_kernels::pack(format_.wire, reinterpret_cast<float*>(data_) + move.range.first, message.eager.data,
                                               static_cast<size_t>(move.range.size())));
        }
        if (message.eager.bytes > 0) transport.post_send(message.eager);
        post_rest(transport, message);
    }
}

void ProgramRun::post_rest(Transport& transport, Message& message) {
    if (message.rest_posted || message.rest.bytes == 0 || !message.credit.complete()) return;
    message.rest_posted = true;
    transport.post_send(message.rest);
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
    return advance_sum(lanes_[lane], round, element_budget, got_on) && complete;
}

bool ProgramRun::advance_move(Transport& transport, uint32_t move_index, int64_t& element_budget, bool& got_on) {
    Message& message = messages_[move_index];
    const Move& move = program_.moves[move_index];
    if (move.kind == MoveKind::send) {
        post_rest(transport, message);
        return message.complete();
    }
    if (move.slot != kInPlace || !format_.converts()) return message.complete();
    const int64_t count = std::min(elements_moved(message) - message.unpacked, element_budget);
    if (count > 0) {
        const size_t offset = static_cast<size_t>(message.unpacked) * format_.wire_bytes();
        wire_kernels::unpack(format_.wire, message.eager.data + offset,
                             reinterpret_cast<float*>(data_) + move.range.first + message.unpacked, static_cast<size_t>(count));
        message.unpacked += count;
        element_budget -= count;
        got_on = true;
    }
    return message.unpacked == move.range.size();
}

bool ProgramRun::advance_sum(LaneState& state, const Round& round, int64_t& element_budget, bool& got_on) {
    const int64_t total = round.operand_count == 0 ? 0 : round.sum_range.size();
    const int64_t ready = total == 0 ? 0 : summable_until(round) - round.sum_range.first;
    if (ready < total && ready - state.summed < kWorthSumming) return false;
    while (state.summed < ready && element_budget > 0) {
        const int64_t count = std::min(kBlockCount, ready - state.summed);
        sum_block(round, round.sum_range.first + state.summed, count);
        state.summed += count;
        element_budget -= count;
        got_on = true;
    }
    return state.summed == total;
}

// The sum may be written up to here: the operands have arrived, and what it overwrites has been sent. Positions before a message's
// range do not concern it.
int64_t ProgramRun::summable_until(const Round& round) const {
    int64_t until = round.sum_range.last;
    const auto operands = program_.operands_of(round);
    for (uint32_t index = round.first_move; index < round.first_move + round.move_count; ++index) {
        const Move& move = program_.moves[index];
        const Message& message = messages_[index];
        if (message.complete() || !overlap(move.range, round.sum_range)) continue;
        const bool holds_up = move.kind == MoveKind::send
                                  ? !format_.converts()
                                  : std::find(operands.begin(), operands.end(), move.slot) != operands.end();
        if (holds_up) until = std::min(until, move.range.first + elements_moved(message));
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

int64_t ProgramRun::elements_moved(const Message& message) const {
    return static_cast<int64_t>(message.moved() / format_.wire_bytes());
}

}  // namespace lockstep
