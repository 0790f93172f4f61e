// Reduce-scatter, then allgather, each in log_k p rounds: in a round of the first the members that differ in one digit cut what
// they hold into k parts, keep one part each and sum it; the second walks the same rounds backwards. k >= p is direct: every member
// sends every other its slice, then gets all slices.
#include "collectives/schedule/parts.h"

namespace lockstep::schedule {

namespace {

// The block of slices that a member holds before a stage, and how the stage cuts it.
struct Cut {
    int first = 0;
    int part = 0;  // slices in one part
    int own_digit = 0;

    Range range(const Borders& borders, int digit) const {
        const auto from = static_cast<size_t>(first + digit * part);
        return {borders[from], borders[from + static_cast<size_t>(part)]};
    }
};

std::vector<Cut> cuts_of(int member, const std::vector<Stage>& stages, int member_count) {
    std::vector<Cut> cuts;
    int first = 0;
    int length = member_count;
    for (const Stage& stage : stages) {
        length /= stage.factor;
        const int own_digit = member / stage.distance % stage.factor;
        cuts.push_back({.first = first, .part = length, .own_digit = own_digit});
        first += own_digit * length;
    }
    return cuts;
}

int peer_of(const Group& group, const Stage& stage, int own_digit, int digit) {
    return group.ranks[static_cast<size_t>(group.self + (digit - own_digit) * stage.distance)];
}

}  // namespace

void add_reduce_scatter(ProgramBuilder& builder, const Group& group, const std::vector<Stage>& stages, const Borders& borders) {
    const std::vector<Cut> cuts = cuts_of(group.self, stages, group.size());
    for (size_t index = 0; index < stages.size(); ++index) {
        const Stage& stage = stages[index];
        const Cut& cut = cuts[index];
        const Range own = cut.range(borders, cut.own_digit);
        builder.round();
        for (int step = 1; step < stage.factor; ++step) {
            const int digit = (cut.own_digit + step) % stage.factor;
            const int peer = peer_of(group, stage, cut.own_digit, digit);
            builder.send(peer, cut.range(borders, digit));
            builder.receive(peer, own, slot_of(digit, cut.own_digit));
        }
        builder.sum(own, operands_in_order(cut.own_digit, stage.factor));
    }
}

void add_allgather(ProgramBuilder& builder, const Group& group, const std::vector<Stage>& stages, const Borders& borders) {
    const std::vector<Cut> cuts = cuts_of(group.self, stages, group.size());
    for (size_t index = stages.size(); index-- > 0;) {
        const Stage& stage = stages[index];
        const Cut& cut = cuts[index];
        builder.round();
        for (int step = 1; step < stage.factor; ++step) {
            const int digit = (cut.own_digit + step) % stage.factor;
            const int peer = peer_of(group, stage, cut.own_digit, digit);
            builder.send(peer, cut.range(borders, cut.own_digit));
            builder.receive(peer, cut.range(borders, digit));
        }
    }
}

void add_halving_doubling(ProgramBuilder& builder, const Group& group, int radix, Range range) {
    const Shape shape = shape_for(group.size(), radix);
    const Folding folding = fold(group, shape);
    const std::vector<Stage> stages = distance_doubling(shape);
    const Borders borders = equal_borders(range, shape.participants);
    add_fold_in(builder, folding, range);
    if (folding.participants.self >= 0) {
        add_reduce_scatter(builder, folding.participants, stages, borders);
        add_allgather(builder, folding.participants, stages, borders);
    }
    add_fold_out(builder, folding, range);
}

namespace {

// What a participant stands for: its own slice and, behind it, its extra's.
Borders borders_of_participants(const Group& group, const Shape& shape, const Borders& borders) {
    Borders result;
    for (int participant = 0; participant < shape.participants; ++participant) {
        result.push_back(borders[static_cast<size_t>(first_member_of(group, shape, participant))]);
    }
    result.push_back(borders.back());
    return result;
}

Range slice_of(const Borders& borders, int member) {
    return {borders[static_cast<size_t>(member)], borders[static_cast<size_t>(member) + 1]};
}

}  // namespace

void add_folded_reduce_scatter(ProgramBuilder& builder, const Group& group, int radix, const Borders& borders) {
    const Shape shape = shape_for(group.size(), radix);
    const Folding folding = fold(group, shape);
    add_fold_in(builder, folding, {borders.front(), borders.back()});
    const bool takes_part = folding.participants.self >= 0;
    if (takes_part) {
        add_reduce_scatter(builder, folding.participants, distance_halving(shape), borders_of_participants(group, shape, borders));
    }
    if (folding.partner >= 0) add_fold_out(builder, folding, slice_of(borders, takes_part ? group.self + 1 : group.self));
}

void add_folded_allgather(ProgramBuilder& builder, const Group& group, int radix, const Borders& borders) {
    const Shape shape = shape_for(group.size(), radix);
    const Folding folding = fold(group, shape);
    const bool takes_part = folding.participants.self >= 0;
    if (folding.partner >= 0) {  // the extra's slice comes to its participant
        builder.round();
        if (takes_part) {
            builder.receive(folding.partner, slice_of(borders, group.self + 1));
        } else {
            builder.send(folding.partner, slice_of(borders, group.self));
        }
    }
    if (takes_part) {
        add_allgather(builder, folding.participants, distance_halving(shape), borders_of_participants(group, shape, borders));
    }
    add_fold_out(builder, folding, {borders.front(), borders.back()});
}

}  // namespace lockstep::schedule
