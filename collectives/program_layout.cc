#include "collectives/program_layout.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace lockstep {

namespace {

using schedule::kInPlace;
using schedule::Lane;
using schedule::Move;
using schedule::MoveKind;
using schedule::Program;
using schedule::Range;
using schedule::Round;

constexpr size_t kAlignment = 64;
constexpr size_t kLeastEagerBytes = 1024;  // a shorter front is not worth a frame of its own

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool overlap(const Range& left, const Range& right) { return left.first < right.last && right.first < left.last; }

class LayoutMaker {
public:
    LayoutMaker(const Program& program, const ElementFormat& format, size_t eager_bytes)
        : program_(program),
          format_(format),
          lane_eager_bytes_(eager_bytes / std::max<size_t>(1, program.lanes.size()) / kAlignment * kAlignment) {}

    ProgramLayout make() {
        layout_.moves.resize(program_.moves.size());
        layout_.slot_offsets.resize(static_cast<size_t>(program_.slot_count));
        place_slots();
        for (const Lane& lane : program_.lanes) {
            layout_.lane_first_post.push_back(static_cast<uint32_t>(layout_.posts.size()));
            divide_messages(lane);
            place_messages(lane);
            order_posts(lane);
        }
        layout_.lane_first_post.push_back(static_cast<uint32_t>(layout_.posts.size()));
        for (const auto& [peer, bytes] : eager_by_peer_) {
            layout_.neighbours.push_back(peer);
            layout_.eager_bytes_per_peer = std::max(layout_.eager_bytes_per_peer, bytes);
        }
        return std::move(layout_);
    }

private:
    size_t take_scratch(size_t bytes) {
        const size_t offset = layout_.scratch_bytes;
        layout_.scratch_bytes += aligned(bytes);
        return offset;
    }
    size_t message_bytes(const Move& move) const { return static_cast<size_t>(move.range.size()) * format_.wire_bytes(); }
    MoveLayout& layout_of(const Move& move) { return layout_.moves[static_cast<size_t>(&move - program_.moves.data())]; }

    // A slot is as long as from the first to the last element that is ever received into it.
    void place_slots() {
        for (int32_t slot = 0; slot < program_.slot_count; ++slot) {
            Range hull{INT64_MAX, INT64_MIN};
            for (const Move& move : program_.moves) {
                if (move.kind != MoveKind::receive || move.slot != slot) continue;
                hull = {std::min(hull.first, move.range.first), std::max(hull.last, move.range.last)};
            }
            if (hull.first > hull.last) continue;
            const size_t offset = take_scratch(static_cast<size_t>(hull.size()) * format_.wire_bytes());
            layout_.slot_offsets[static_cast<size_t>(slot)] =
                static_cast<int64_t>(offset) - hull.first * static_cast<int64_t>(format_.wire_bytes());
        }
    }

    // The n-th send of a lane to a peer meets the n-th receive there: both sides spend the lane's eager bytes in the same order.
    void divide_messages(const Lane& lane) {
        std::map<std::pair<int32_t, MoveKind>, size_t> left;
        for (const Round& round : program_.rounds_of(lane)) {
            for (const Move& move : program_.moves_of(round)) {
                size_t& eager_left = left.try_emplace({move.peer, move.kind}, lane_eager_bytes_).first->second;
                const size_t bytes = message_bytes(move);
                size_t eager_bytes = std::min(bytes, eager_left);
                if (eager_bytes < bytes) eager_bytes = eager_bytes < kLeastEagerBytes ? 0 : eager_bytes / kAlignment * kAlignment;
                eager_left -= eager_bytes;
                layout_of(move).eager_bytes = eager_bytes;
                layout_of(move).rest_bytes = bytes - eager_bytes;
                size_t& peer_bytes = eager_by_peer_[move.peer];
                if (move.kind == MoveKind::send) peer_bytes += eager_bytes;
            }
        }
    }

    void place_messages(const Lane& lane) {
        size_t send_bytes = 0;  // converted sends of one round; those of the next take their place
        for (const Round& round : program_.rounds_of(lane)) send_bytes = std::max(send_bytes, place_sends(round, 0));
        const size_t send_offset = take_scratch(send_bytes);
        for (const Round& round : program_.rounds_of(lane)) {
            place_sends(round, send_offset);
            for (const Move& move : program_.moves_of(round)) {
                if (move.kind == MoveKind::send) continue;
                MoveLayout& place = layout_of(move);
                if (move.slot != kInPlace) {
                    place.scratch_offset = layout_.slot_offsets[static_cast<size_t>(move.slot)] +
                                           move.range.first * static_cast<int64_t>(format_.wire_bytes());
                } else if (format_.converts()) {
                    place.scratch_offset = static_cast<int64_t>(take_scratch(message_bytes(move)));
                }
            }
        }
    }

    // Returns the bytes that the round's converted messages take from `offset` on.
    size_t place_sends(const Round& round, size_t offset) {
        if (!format_.converts()) return 0;
        const size_t start = offset;
        const auto moves = program_.moves_of(round);
        for (const Move& move : moves) {
            if (move.kind != MoveKind::send) continue;
            MoveLayout& place = layout_of(move);
            const auto twin = std::find_if(moves.begin(), moves.end(), [&](const Move& other) {
                return other.kind == MoveKind::send && other.range.first == move.range.first && other.range.last == move.range.last;
            });
            place.converted_by = static_cast<uint32_t>(&*twin - program_.moves.data());
            if (&*twin != &move) {
                place.scratch_offset = layout_of(*twin).scratch_offset;
                continue;
            }
            place.scratch_offset = static_cast<int64_t>(offset);
            offset += aligned(message_bytes(move));
        }
        return offset - start;
    }

    // May the memory of `receive` not yet be written while `round` runs?
    bool conflicts(const Move& receive, const Round& round) const {
        if (receive.slot == kInPlace) {
            if (format_.converts()) return false;  // has scratch memory of its own
            if (round.operand_count > 0 && overlap(receive.range, round.sum_range)) return true;
            const auto moves = program_.moves_of(round);
            return std::any_of(moves.begin(), moves.end(), [&](const Move& move) {
                return (move.kind == MoveKind::send || move.slot == kInPlace) && overlap(receive.range, move.range);
            });
        }
        const auto operands = program_.operands_of(round);
        if (overlap(receive.range, round.sum_range) &&
            std::find(operands.begin(), operands.end(), receive.slot) != operands.end()) {
            return true;
        }
        const auto moves = program_.moves_of(round);
        return std::any_of(moves.begin(), moves.end(), [&](const Move& move) {
            return move.kind == MoveKind::receive && move.slot == receive.slot && overlap(receive.range, move.range);
        });
    }

    // As early as the memory is free, but never before an earlier message of the same peer.
    void order_posts(const Lane& lane) {
        const auto rounds = program_.rounds_of(lane);
        std::map<int32_t, uint32_t> last_post_round;
        const size_t first_post = layout_.posts.size();
        for (uint32_t index = 0; index < rounds.size(); ++index) {
            for (const Move& move : program_.moves_of(rounds[index])) {
                if (move.kind == MoveKind::send) continue;
                uint32_t earliest = index;
                while (earliest > 0 && !conflicts(move, rounds[earliest - 1])) --earliest;
                uint32_t& last = last_post_round[move.peer];
                last = std::max(last, earliest);
                layout_of(move).post_round = last;
                layout_.posts.push_back(static_cast<uint32_t>(&move - program_.moves.data()));
            }
        }
        std::stable_sort(
            layout_.posts.begin() + static_cast<int64_t>(first_post), layout_.posts.end(),
            [&](uint32_t left, uint32_t right) { return layout_.moves[left].post_round < layout_.moves[right].post_round; });
    }

    const Program& program_;
    const ElementFormat& format_;
    const size_t lane_eager_bytes_;
    std::map<int32_t, size_t> eager_by_peer_;
    ProgramLayout layout_;
};

}  // namespace

ProgramLayout lay_out(const schedule::Program& program, const ElementFormat& format, size_t eager_bytes) {
    check(format.value == format.wire || format.value == DataType::f32, "only fp32 values are converted for the wire");
    return LayoutMaker(program, format, eager_bytes).make();
}

}  // namespace lockstep
