#include "collectives/schedule/parts.h"

namespace lockstep::schedule {

int lane_count(const Plan& plan) {
    switch (plan.algorithm) {
        case Algorithm::exchange:
        case Algorithm::halving_doubling:
            return 1;
        case Algorithm::ring:
        case Algorithm::tree:
            return plan.chunks;
        case Algorithm::double_tree:
            return 2 * plan.chunks;  // one after the other belongs to the first and the second tree
    }
    return 1;
}

void add_allreduce_lane(ProgramBuilder& builder, const Plan& plan, const Group& group, int lane, Range range) {
    switch (plan.algorithm) {
        case Algorithm::exchange:
            return add_exchange(builder, group, plan.radix, range);
        case Algorithm::halving_doubling:
            return add_halving_doubling(builder, group, plan.radix, range);
        case Algorithm::ring: {
            std::vector<Range> slices;
            for (int member = 0; member < group.size(); ++member) slices.push_back(piece(range, member, group.size()));
            add_ring_reduce_scatter(builder, group, slices);
            return add_ring_allgather(builder, group, slices);
        }
        case Algorithm::tree:
            add_tree_reduce(builder, group, 2, range);
            return add_tree_broadcast(builder, group, 2, range);
        case Algorithm::double_tree:
            add_binary_reduce(builder, group, lane % 2, range);
            return add_binary_broadcast(builder, group, lane % 2, range);
    }
}

Program build_hierarchical(const Plan& between_nodes, int rank, int node_count, int local_count, int64_t count) {
    const int local_rank = rank % local_count;
    Group node{.ranks = {}, .self = local_rank};
    Group rail{.ranks = {}, .self = rank / local_count};
    for (int local = 0; local < local_count; ++local) node.ranks.push_back(rank - local_rank + local);
    for (int other = 0; other < node_count; ++other) rail.ranks.push_back(other * local_count + local_rank);

    const std::vector<Stage> direct{{.factor = local_count, .distance = 1}};
    ProgramBuilder builder;
    const int lanes = lane_count(between_nodes);
    for (int lane = 0; lane < lanes; ++lane) {
        const Borders borders = equal_borders(piece({0, count}, lane, lanes), local_count);
        const auto own = static_cast<size_t>(local_rank);
        builder.lane();
        add_reduce_scatter(builder, node, direct, borders);
        add_allreduce_lane(builder, between_nodes, rail, lane, {borders[own], borders[own + 1]});
        add_allgather(builder, node, direct, borders);
    }
    return builder.finish();
}

}  // namespace lockstep::schedule
