#include "collectives/schedule/program_builder.h"

#include <algorithm>
#include <utility>

namespace lockstep::schedule {

void ProgramBuilder::drop_empty_round() {
    if (program_.lanes.empty() || program_.lanes.back().round_count == 0) return;
    const Round& last = program_.rounds.back();
    if (last.move_count > 0 || last.operand_count > 0) return;
    program_.rounds.pop_back();
    --program_.lanes.back().round_count;
}

void ProgramBuilder::lane() {
    drop_empty_round();
    program_.lanes.push_back({.first_round = static_cast<uint32_t>(program_.rounds.size())});
}

void ProgramBuilder::round() {
    drop_empty_round();
    program_.rounds.push_back({.first_move = static_cast<uint32_t>(program_.moves.size()),
                               .first_operand = static_cast<uint32_t>(program_.operands.size())});
    ++program_.lanes.back().round_count;
}

void ProgramBuilder::send(int peer, Range range) {
    if (range.size() == 0) return;
    program_.moves.push_back({.kind = MoveKind::send, .peer = peer, .range = range});
    ++program_.rounds.back().move_count;
}

void ProgramBuilder::receive(int peer, Range range, int32_t slot) {
    if (range.size() == 0) return;
    program_.moves.push_back({.kind = MoveKind::receive, .peer = peer, .slot = slot, .range = range});
    ++program_.rounds.back().move_count;
    program_.slot_count = std::max(program_.slot_count, slot + 1);
}

void ProgramBuilder::sum(Range range, std::span<const int32_t> operands) {
    if (range.size() == 0) return;
    Round& round = program_.rounds.back();
    round.sum_range = range;
    round.operand_count = static_cast<uint32_t>(operands.size());
    program_.operands.insert(program_.operands.end(), operands.begin(), operands.end());
}

Program ProgramBuilder::finish() {
    drop_empty_round();
    return std::move(program_);
}

}  // namespace lockstep::schedule
