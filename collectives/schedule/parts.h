// The parts that collectives are put together from. Each appends rounds to the lane that was begun; each is called with the same
// arguments, but for `self`, on all members of a group.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/schedule/program_builder.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/shape.h"

namespace lockstep::schedule {

// Some ranks in an order, and which of them this program is for.
struct Group {
    std::vector<int> ranks;
    int self = 0;  // index in `ranks`

    int size() const { return static_cast<int>(ranks.size()); }
};
Group all_ranks(int rank, int rank_count);
Group rotated(const Group& group, int first);  // the member `first` becomes number 0

// Part `index` of `count` about equal ones, as Communicator::slice cuts.
Range piece(Range range, int index, int count);

// Borders of the pieces of all members: borders[i] .. borders[i + 1] is member i's. One more than there are members.
using Borders = std::vector<int64_t>;
Borders equal_borders(Range range, int count);

// One round of a mixed-radix exchange: the members that differ in one digit of their number meet.
struct Stage {
    int factor = 1;
    int distance = 1;
};
std::vector<Stage> distance_doubling(const Shape& shape);  // neighbours first: sums along the rank tree
std::vector<Stage> distance_halving(const Shape& shape);   // the farthest first: pieces stay in the order of the members

// The participants of a shape, and the folding of the others. Extra 2i + 1 stands behind participant 2i, so sums keep rank order.
struct Folding {
    Group participants;  // self is -1 on an extra
    int partner = -1;    // rank of this participant's extra, or of this extra's participant
};
Folding fold(const Group& group, const Shape& shape);
int first_member_of(const Group& group, const Shape& shape, int participant);  // the participant's own number in the group

// exchange.cc
void add_fold_in(ProgramBuilder& builder, const Folding& folding, Range range);   // extras hand over their data, which is added
void add_fold_out(ProgramBuilder& builder, const Folding& folding, Range range);  // extras get `range` back
void add_exchange(ProgramBuilder& builder, const Group& group, int radix, Range range);
std::vector<int32_t> operands_in_order(int own_digit, int factor);
inline int32_t slot_of(int digit, int own_digit) { return digit < own_digit ? digit : digit - 1; }

// halving_doubling.cc. `borders` are of the participants of the stages.
void add_reduce_scatter(ProgramBuilder& builder, const Group& group, const std::vector<Stage>& stages, const Borders& borders);
void add_allgather(ProgramBuilder& builder, const Group& group, const std::vector<Stage>& stages, const Borders& borders);
void add_halving_doubling(ProgramBuilder& builder, const Group& group, int radix, Range range);
void add_folded_reduce_scatter(ProgramBuilder& builder, const Group& group, int radix, const Borders& borders);
void add_folded_allgather(ProgramBuilder& builder, const Group& group, int radix, const Borders& borders);

// ring.cc. slices[i] ends on, or comes from, member i.
void add_ring_reduce_scatter(ProgramBuilder& builder, const Group& group, const std::vector<Range>& slices);
void add_ring_allgather(ProgramBuilder& builder, const Group& group, const std::vector<Range>& slices);
void add_chain_broadcast(ProgramBuilder& builder, const Group& group, Range range);  // from member 0
void add_chain_reduce(ProgramBuilder& builder, const Group& group, Range range);     // to member 0

// tree.cc: k-nomial trees over the order of the members, root 0.
void add_tree_reduce(ProgramBuilder& builder, const Group& group, int radix, Range range);
void add_tree_broadcast(ProgramBuilder& builder, const Group& group, int radix, Range range);

// double_tree.cc: one of the two binary trees (0 or 1), root member 0 in both.
void add_binary_reduce(ProgramBuilder& builder, const Group& group, int tree, Range range);
void add_binary_broadcast(ProgramBuilder& builder, const Group& group, int tree, Range range);

// allreduce.cc: how many lanes a plan has, and what runs in one of them over its part of the buffer.
int lane_count(const Plan& plan);
void add_allreduce_lane(ProgramBuilder& builder, const Plan& plan, const Group& group, int lane, Range range);

}  // namespace lockstep::schedule
