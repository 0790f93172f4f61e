#include "collectives/schedule/form_check.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include <fmt/format.h>

namespace lockstep::schedule {

namespace {

std::string text_of(Range range) { return fmt::format("[{}, {})", range.first, range.last); }
bool is_inside(Range range, int64_t count) { return range.first >= 0 && range.last <= count && range.size() > 0; }
bool overlap(Range left, Range right) { return left.first < right.last && right.first < left.last; }

// Text only when it is needed: most rounds are right.
struct Where {
    int rank = 0;
    size_t lane = 0;
    size_t round = 0;

    std::string text() const { return fmt::format("rank {}, lane {}, round {}", rank, lane, round); }
};

// A range that a round uses: in place (kInPlace) or in a slot.
struct Use {
    int32_t slot = kInPlace;
    Range range;
    bool lands = false;  // a receive
};

void check_move(const Move& move, const Program& program, const Where& where, int rank_count, int64_t count) {
    if (move.peer < 0 || move.peer >= rank_count || move.peer == where.rank) {
        throw Finding{Fault::malformed, fmt::format("{}: a move with rank {} of {}", where.text(), move.peer, rank_count)};
    }
    if (!is_inside(move.range, count)) {
        throw Finding{Fault::malformed, fmt::format("{}: a move of {} in {} elements", where.text(), text_of(move.range), count)};
    }
    if (move.kind == MoveKind::receive && (move.slot < kInPlace || move.slot >= program.slot_count)) {
        throw Finding{Fault::malformed,
                      fmt::format("{}: a receive into slot {} of {}", where.text(), move.slot, program.slot_count)};
    }
}

void check_sum(const Round& round, const Program& program, const Where& where, int64_t count) {
    if (round.operand_count == 0) return;
    if (!is_inside(round.sum_range, count)) {
        throw Finding{Fault::malformed,
                      fmt::format("{}: a sum over {} in {} elements", where.text(), text_of(round.sum_range), count)};
    }
    for (const int32_t slot : program.operands_of(round)) {
        if (slot >= kInPlace && slot < program.slot_count) continue;
        throw Finding{Fault::malformed, fmt::format("{}: a sum of slot {} of {}", where.text(), slot, program.slot_count)};
    }
}

// Sends may share ranges with each other and with the sum: they ship what was there before. A receive shares with nothing. Sorted
// by place, only neighbours can overlap unless a longer range spans them; so the farthest end so far is kept for each kind.
void check_hazards(const Round& round, const Program& program, const Where& where, std::vector<Use>& uses) {
    uses.clear();
    for (const Move& move : program.moves_of(round)) {
        const bool lands = move.kind == MoveKind::receive;
        uses.push_back({lands ? move.slot : kInPlace, move.range, lands});
    }
    if (round.operand_count > 0) uses.push_back({kInPlace, round.sum_range, false});
    std::sort(uses.begin(), uses.end(), [](const Use& left, const Use& right) {
        return std::tuple(left.slot, left.range.first) < std::tuple(right.slot, right.range.first);
    });
    int32_t slot = kInPlace;
    Range landed;  // the use of each kind that reaches farthest
    Range used;
    for (const Use& use : uses) {
        if (use.slot != slot) landed = used = Range{};
        slot = use.slot;
        const Range* other = nullptr;
        if (overlap(use.range, landed)) other = &landed;
        if (use.lands && overlap(use.range, used)) other = &used;
        if (other != nullptr) {
            throw Finding{Fault::hazard, fmt::format("{}: a receive and another use of the round, {} and {}, overlap", where.text(),
                                                     text_of(*other), text_of(use.range))};
        }
        Range& farthest = use.lands ? landed : used;
        if (use.range.last > farthest.last) farthest = use.range;
    }
}

struct LaneRange {
    Range range;
    size_t lane = 0;
};

// Everything the lane touches, with what adjoins joined.
void add_touched(const Program& program, size_t lane, std::vector<LaneRange>& all) {
    std::vector<Range> ranges;
    for (const Round& round : program.rounds_of(program.lanes[lane])) {
        for (const Move& move : program.moves_of(round)) ranges.push_back(move.range);
        if (round.operand_count > 0) ranges.push_back(round.sum_range);
    }
    std::sort(ranges.begin(), ranges.end(), [](Range left, Range right) { return left.first < right.first; });
    const size_t before = all.size();
    for (const Range range : ranges) {
        if (all.size() > before && range.first <= all.back().range.last) {
            all.back().range.last = std::max(all.back().range.last, range.last);
        } else {
            all.push_back({range, lane});
        }
    }
}

void check_lanes(const Program& program, int rank) {
    if (program.lanes.size() < 2) return;
    std::vector<LaneRange> all;
    for (size_t lane = 0; lane < program.lanes.size(); ++lane) add_touched(program, lane, all);
    std::sort(all.begin(), all.end(),
              [](const LaneRange& left, const LaneRange& right) { return left.range.first < right.range.first; });
    for (size_t index = 1; index < all.size(); ++index) {
        const LaneRange& left = all[index - 1];
        const LaneRange& right = all[index];
        if (!overlap(left.range, right.range)) continue;
        throw Finding{Fault::lanes_overlap, fmt::format("rank {}: lane {} uses {}, lane {} uses {}", rank, left.lane,
                                                        text_of(left.range), right.lane, text_of(right.range))};
    }
}

}  // namespace

void check_form(const Program& program, int rank, int rank_count, int64_t count) {
    std::vector<Use> uses;  // memory that is used again for every round
    for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
        const std::span<const Round> rounds = program.rounds_of(program.lanes[lane]);
        for (size_t index = 0; index < rounds.size(); ++index) {
            const Where where{rank, lane, index};
            for (const Move& move : program.moves_of(rounds[index])) check_move(move, program, where, rank_count, count);
            check_sum(rounds[index], program, where, count);
            check_hazards(rounds[index], program, where, uses);
        }
    }
    check_lanes(program, rank);
}

}  // namespace lockstep::schedule
