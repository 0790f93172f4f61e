// k-nomial trees; k = 2 is the binomial tree. At distance d = 1, k, k^2, ... the members that are multiples of k d collect from
// the k - 1 members d apart behind them. A subtree is a run of neighbours, so sums follow the rank tree when k is a power of two.
#include "collectives/schedule/parts.h"

namespace lockstep::schedule {

namespace {

// The members that hang below `member` at this distance, nearest first.
std::vector<int> children_of(const Group& group, int64_t distance, int radix) {
    std::vector<int> children;
    for (int index = 1; index < radix; ++index) {
        const int64_t child = group.self + index * distance;
        if (child >= group.size()) break;
        children.push_back(group.ranks[static_cast<size_t>(child)]);
    }
    return children;
}

int parent_of(const Group& group, int64_t distance, int radix) {
    return group.ranks[static_cast<size_t>(group.self - group.self % (distance * radix))];
}

// The distance at which the member hangs below its parent; for member 0 the first that spans the group.
int64_t own_distance(const Group& group, int radix) {
    int64_t distance = 1;
    while (distance < group.size() && group.self % (distance * radix) == 0) distance *= radix;
    return distance;
}

}  // namespace

void add_tree_reduce(ProgramBuilder& builder, const Group& group, int radix, Range range) {
    const int64_t own = own_distance(group, radix);
    for (int64_t distance = 1; distance < own; distance *= radix) {
        const std::vector<int> children = children_of(group, distance, radix);
        if (children.empty()) continue;
        builder.round();
        std::vector<int32_t> operands{kInPlace};
        for (const int child : children) {
            const auto slot = static_cast<int32_t>(operands.size()) - 1;
            builder.receive(child, range, slot);
            operands.push_back(slot);
        }
        builder.sum(range, operands);
    }
    if (group.self == 0) return;
    builder.round();
    builder.send(parent_of(group, own, radix), range);
}

void add_tree_broadcast(ProgramBuilder& builder, const Group& group, int radix, Range range) {
    const int64_t own = own_distance(group, radix);
    if (group.self != 0) {
        builder.round();
        builder.receive(parent_of(group, own, radix), range);
    }
    builder.round();  // one round: no child waits for another; the largest subtree goes first
    for (int64_t distance = own / radix; distance >= 1; distance /= radix) {
        for (const int child : children_of(group, distance, radix)) builder.send(child, range);
    }
}

}  // namespace lockstep::schedule
