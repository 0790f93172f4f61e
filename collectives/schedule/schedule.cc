#include "collectives/schedule/schedule.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "collectives/schedule/parts.h"
#include "core/error.h"

namespace lockstep::schedule {

std::string_view to_string(Collective collective) {
    switch (collective) {
        case Collective::allreduce:
            return "allreduce";
        case Collective::reduce_scatter:
            return "reduce_scatter";
        case Collective::allgather:
            return "allgather";
        case Collective::broadcast:
            return "broadcast";
        case Collective::reduce:
            return "reduce";
    }
    return "?";
}

std::string_view to_string(Algorithm algorithm) {
    switch (algorithm) {
        case Algorithm::exchange:
            return "exchange";
        case Algorithm::halving_doubling:
            return "halving_doubling";
        case Algorithm::ring:
            return "ring";
        case Algorithm::tree:
            return "tree";
        case Algorithm::double_tree:
            return "double_tree";
    }
    return "?";
}

std::string describe(const Plan& plan) {
    const bool has_radix = plan.algorithm == Algorithm::exchange || plan.algorithm == Algorithm::halving_doubling;
    const std::string how =
        has_radix ? fmt::format("{}({})", to_string(plan.algorithm), plan.radix)
                  : fmt::format("{}({} chunk{})", to_string(plan.algorithm), plan.chunks, plan.chunks == 1 ? "" : "s");
    switch (plan.collective) {
        case Collective::allreduce:
            return how;
        case Collective::broadcast:
            return fmt::format("broadcast from rank {} by {}", plan.root, how);
        case Collective::reduce:
            return fmt::format("reduce to rank {} by {}", plan.root, how);
        default:
            return fmt::format("{} by {}", to_string(plan.collective), how);
    }
}

bool exists(Collective collective, Algorithm algorithm) {
    const bool is_tree = algorithm == Algorithm::tree || algorithm == Algorithm::double_tree;
    switch (collective) {
        case Collective::allreduce:
            return true;
        case Collective::reduce_scatter:
        case Collective::allgather:
            return !is_tree;
        case Collective::broadcast:
        case Collective::reduce:
            return algorithm != Algorithm::halving_doubling;
    }
    return false;
}

int left_operands(int operand_count) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(operand_count - 1))); }

namespace {

bool is_power_of_two(int number) { return std::has_single_bit(static_cast<unsigned>(number)); }

bool exchange_follows_rank_tree(int radix, int rank_count) {
    const Shape shape = shape_for(rank_count, radix);
    if (shape.participants < rank_count) return false;
    // Whole subtrees of the rank tree meet in every round but the last, which may have any number of them.
    return std::all_of(shape.factors.begin(), shape.factors.end() - 1, is_power_of_two);
}

void check_plan(const Plan& plan, int rank_count, int64_t count) {
    check(rank_count >= 1 && count >= 0, "a schedule is built for at least one rank and no negative number of elements");
    const auto refuse = [&](const std::string& why) {
        throw ConfigError(fmt::format("there is no schedule {}: {}", describe(plan), why));
    };
    if (!exists(plan.collective, plan.algorithm)) {
        refuse(fmt::format("{} has no {}; choose exchange or ring", to_string(plan.collective), to_string(plan.algorithm)));
    }
    if (plan.radix < 2) refuse(fmt::format("the radix is {}; choose 2 or more", plan.radix));
    if (plan.chunks < 1) refuse(fmt::format("the number of chunks is {}; choose 1 or more", plan.chunks));
    if (plan.root < 0 || plan.root >= rank_count) {
        refuse(fmt::format("the root is {}; choose one of the ranks 0 to {}", plan.root, rank_count - 1));
    }
}

void add_allreduce(ProgramBuilder& builder, const Plan& plan, const Group& group, int64_t count) {
    const int lanes = lane_count(plan);
    for (int lane = 0; lane < lanes; ++lane) {
        builder.lane();
        add_allreduce_lane(builder, plan, group, lane, piece({0, count}, lane, lanes));
    }
}

// reduce_scatter and allgather: the slices are given, so the ring's chunks are parts of each slice.
void add_sliced(ProgramBuilder& builder, const Plan& plan, const Group& group, int64_t count) {
    const bool sums = plan.collective == Collective::reduce_scatter;
    const Borders borders = equal_borders({0, count}, group.size());
    if (plan.algorithm != Algorithm::ring) {
        builder.lane();
        sums ? add_folded_reduce_scatter(builder, group, plan.radix, borders)
             : add_folded_allgather(builder, group, plan.radix, borders);
        return;
    }
    for (int lane = 0; lane < plan.chunks; ++lane) {
        std::vector<Range> slices;
        for (size_t member = 0; member + 1 < borders.size(); ++member) {
            slices.push_back(piece({borders[member], borders[member + 1]}, lane, plan.chunks));
        }
        builder.lane();
        sums ? add_ring_reduce_scatter(builder, group, slices) : add_ring_allgather(builder, group, slices);
    }
}

// broadcast and reduce: along a tree or chain whose member 0 is the root.
void add_rooted(ProgramBuilder& builder, const Plan& plan, const Group& group, int64_t count) {
    const bool sums = plan.collective == Collective::reduce;
    const int lanes = lane_count(plan);
    for (int lane = 0; lane < lanes; ++lane) {
        const Range range = piece({0, count}, lane, lanes);
        builder.lane();
        if (plan.algorithm == Algorithm::ring) {
            sums ? add_chain_reduce(builder, group, range) : add_chain_broadcast(builder, group, range);
        } else if (plan.algorithm == Algorithm::double_tree) {
            sums ? add_binary_reduce(builder, group, lane % 2, range) : add_binary_broadcast(builder, group, lane % 2, range);
        } else {
            const int radix = plan.algorithm == Algorithm::tree ? 2 : plan.radix;
            sums ? add_tree_reduce(builder, group, radix, range) : add_tree_broadcast(builder, group, radix, range);
        }
    }
}

}  // namespace

bool follows_rank_tree(const Plan& plan, int rank_count) {
    if (rank_count <= 2) return true;
    switch (plan.collective) {
        case Collective::allgather:
        case Collective::broadcast:
            return true;
        case Collective::reduce_scatter:
            return plan.algorithm != Algorithm::ring && shape_for(rank_count, plan.radix).is_one_shot(rank_count);
        case Collective::reduce:
            if (plan.root != 0) return false;
            if (plan.algorithm == Algorithm::exchange) return is_power_of_two(plan.radix) || plan.radix >= rank_count;
            return plan.algorithm == Algorithm::tree;
        case Collective::allreduce:
            break;
    }
    if (plan.algorithm == Algorithm::tree) return true;
    const bool exchanges = plan.algorithm == Algorithm::exchange || plan.algorithm == Algorithm::halving_doubling;
    return exchanges && exchange_follows_rank_tree(plan.radix, rank_count);
}

Program build(const Plan& plan, int rank, int rank_count, int64_t count) {
    check_plan(plan, rank_count, count);
    const Group group = all_ranks(rank, rank_count);
    ProgramBuilder builder;
    switch (plan.collective) {
        case Collective::allreduce:
            add_allreduce(builder, plan, group, count);
            break;
        case Collective::reduce_scatter:
        case Collective::allgather:
            add_sliced(builder, plan, group, count);
            break;
        case Collective::broadcast:
        case Collective::reduce:
            add_rooted(builder, plan, rotated(group, plan.root), count);
            break;
    }
    return builder.finish();
}

std::vector<Program> build_all(const Plan& plan, int rank_count, int64_t count) {
    std::vector<Program> programs;
    for (int rank = 0; rank < rank_count; ++rank) programs.push_back(build(plan, rank, rank_count, count));
    return programs;
}

}  // namespace lockstep::schedule
