// Recursive multiplying: in each round the members that differ in one digit exchange all they have, so after log_k p rounds
// everybody has everything. k = p is one shot: one round in which all send to all.
#include "collectives/schedule/parts.h"

namespace lockstep::schedule {

std::vector<int32_t> operands_in_order(int own_digit, int factor) {
    std::vector<int32_t> operands;
    for (int digit = 0; digit < factor; ++digit) operands.push_back(digit == own_digit ? kInPlace : slot_of(digit, own_digit));
    return operands;
}

void add_exchange(ProgramBuilder& builder, const Group& group, int radix, Range range) {
    const Shape shape = shape_for(group.size(), radix);
    const Folding folding = fold(group, shape);
    add_fold_in(builder, folding, range);
    const Group& members = folding.participants;
    for (const Stage& stage : distance_doubling(shape)) {
        if (members.self < 0) break;
        const int own_digit = members.self / stage.distance % stage.factor;
        builder.round();
        // Each starts with its next neighbour, so that not all send to the same one first.
        for (int step = 1; step < stage.factor; ++step) {
            const int digit = (own_digit + step) % stage.factor;
            const int peer = members.ranks[static_cast<size_t>(members.self + (digit - own_digit) * stage.distance)];
            builder.send(peer, range);
            builder.receive(peer, range, slot_of(digit, own_digit));
        }
        builder.sum(range, operands_in_order(own_digit, stage.factor));
    }
    add_fold_out(builder, folding, range);
}

void add_fold_in(ProgramBuilder& builder, const Folding& folding, Range range) {
    if (folding.partner < 0) return;
    builder.round();
    if (folding.participants.self < 0) {
        builder.send(folding.partner, range);
    } else {
        builder.receive(folding.partner, range, 0);
        builder.sum(range, std::vector<int32_t>{kInPlace, 0});
    }
}

void add_fold_out(ProgramBuilder& builder, const Folding& folding, Range range) {
    if (folding.partner < 0) return;
    builder.round();
    if (folding.participants.self < 0) {
        builder.receive(folding.partner, range);
    } else {
        builder.send(folding.partner, range);
    }
}

}  // namespace lockstep::schedule
