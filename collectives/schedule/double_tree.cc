// Two pipelined binary trees, each for half of the data, so that links work in both directions and nobody is only a leaf (Sanders,
// Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009; NCCL's trees are of this kind).
//
// Member 0 is the root of both, above a tree over the others in which the parent of an odd number is even: odd members are leaves.
// In the second tree the others stand mirrored (odd group) or shifted by one (even group), so that odd and even change places.
#include <bit>

#include "collectives/schedule/parts.h"

namespace lockstep::schedule {

namespace {

Group ordered_for_tree(const Group& group, int tree) {
    if (tree == 0 || group.size() < 3) return group;
    const int size = group.size();
    const auto place_of = [&](int member) {
        if (member == 0) return 0;
        if (size % 2 == 1) return size - member;
        return member == 1 ? size - 1 : member - 1;
    };
    Group result{.ranks = std::vector<int>(group.ranks.size()), .self = place_of(group.self)};
    for (int member = 0; member < size; ++member) {
        result.ranks[static_cast<size_t>(place_of(member))] = group.ranks[static_cast<size_t>(member)];
    }
    return result;
}

// Ranks above and below in the tree over 0 .. size-1 in which a number's height is its number of trailing zero bits; -1: none. The
// left subtree has the smaller numbers.
struct Kin {
    int parent = -1;
    int left = -1;
    int right = -1;
};

Kin kin_of(const Group& group) {
    const int self = group.self;
    const int size = group.size();
    const auto rank_of = [&](int member) { return group.ranks[static_cast<size_t>(member)]; };
    Kin kin;
    if (size < 2) return kin;
    if (self == 0) {
        kin.right = rank_of(static_cast<int>(std::bit_floor(static_cast<unsigned>(size - 1))));
        return kin;
    }
    const int height = self & -self;
    const int above = (self ^ height) | (2 * height);
    kin.parent = rank_of(above < size ? above : self ^ height);
    if (height > 1) kin.left = rank_of(self - height / 2);
    int step = height / 2;  // where the group ends before the right child, a lower one takes its place
    while (step > 0 && self + step >= size) step /= 2;
    if (step > 0) kin.right = rank_of(self + step);
    return kin;
}

}  // namespace

void add_binary_reduce(ProgramBuilder& builder, const Group& group, int tree, Range range) {
    const Kin kin = kin_of(ordered_for_tree(group, tree));
    std::vector<int32_t> operands;
    builder.round();
    if (kin.left >= 0) {
        builder.receive(kin.left, range, 0);
        operands.push_back(0);
    }
    operands.push_back(kInPlace);
    if (kin.right >= 0) {
        const auto slot = static_cast<int32_t>(operands.size()) - 1;
        builder.receive(kin.right, range, slot);
        operands.push_back(slot);
    }
    if (operands.size() > 1) builder.sum(range, operands);
    if (kin.parent < 0) return;
    builder.round();
    builder.send(kin.parent, range);
}

void add_binary_broadcast(ProgramBuilder& builder, const Group& group, int tree, Range range) {
    const Kin kin = kin_of(ordered_for_tree(group, tree));
    builder.round();
    if (kin.parent >= 0) builder.receive(kin.parent, range);
    builder.round();
    if (kin.left >= 0) builder.send(kin.left, range);
    if (kin.right >= 0) builder.send(kin.right, range);
}

}  // namespace lockstep::schedule
