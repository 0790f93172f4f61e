#include "collectives/schedule/cost_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "collectives/schedule/shape.h"
#include "core/error.h"

namespace lockstep::schedule {

namespace {

int log2_rounded_up(int number) { return static_cast<int>(std::bit_width(static_cast<unsigned>(number - 1))); }

std::vector<int> equal_factors(int radix, int rank_count) {
    std::vector<int> factors;
    check(radix >= 2, "a radix is 2 or more");
    for (int64_t reached = 1; reached < rank_count; reached *= radix) factors.push_back(std::min(radix, rank_count));
    return factors;
}

// One cost function per part of a schedule; all in microseconds.
struct Costs {
    LinkModel link;
    double bytes = 0.0;
    int rank_count = 1;

    double wire(double amount) const { return amount * link.wire_ns_per_byte * 1e-3; }
    double sum(double amount) const { return amount * link.sum_ns_per_byte * 1e-3; }
    double share() const { return bytes * (rank_count - 1) / rank_count; }  // (p - 1) / p n

    // A round among `factor` members, each of which sends `message` bytes to all others: the messages follow each other as fast as
    // the slower of processor and wire lets them.
    double round(int factor, double message) const {
        return link.message_us() + wire(message) + (factor - 2) * std::max(link.overhead_us, wire(message));
    }
    double exchange(const std::vector<int>& factors) const {
        double total = 0.0;
        for (const int factor : factors) total += round(factor, bytes) + sum((factor - 1) * bytes);
        return total;
    }
    // Halving and doubling meet the same rounds with the same messages.
    double allgather(const std::vector<int>& factors) const {
        double total = 0.0;
        double block = bytes;
        for (const int factor : factors) {
            block /= factor;
            total += round(factor, block);
        }
        return total;
    }
    double reduce_scatter(const std::vector<int>& factors) const { return allgather(factors) + sum(share()); }

    // `steps` hops of `chunks` pieces each. A piece's hop carries `hop_bytes` / chunks over the wire; per piece the busiest rank
    // has `busy_bytes` / chunks on its wire, as much to add as `sum_bytes` / chunks, and handles `messages` messages.
    double pipeline(int steps, int chunks, double hop_bytes, double hop_sum, double busy_bytes, double sum_bytes,
                    int messages) const {
        const double first = steps * (link.message_us() + wire(hop_bytes / chunks)) + sum(hop_sum / chunks);
        const double each = std::max(wire(busy_bytes / chunks), sum(sum_bytes / chunks) + messages * link.overhead_us);
        return first + (chunks - 1) * each;
    }
    // One pass round the ring. With several chunks, a chunk travels while its neighbours are added and sent.
    double ring_pass(int chunks, bool sums) const {
        const double slice = bytes / rank_count;
        const double to_add = sums ? slice : 0.0;
        const double step = link.message_us() + wire(slice / chunks) + sum(to_add / chunks);
        const double busiest = std::max(wire(slice), sum(to_add) + 2.0 * chunks * link.overhead_us);
        return (rank_count - 1) * (chunks == 1 ? step : std::max(step, busiest));
    }
    // Until all chunks are on their way, or the last one has arrived: whichever of a chunk's step and a slice's work is shorter.
    double ring_fill(int chunks) const {
        const double slice = bytes / rank_count;
        const double step = link.message_us() + wire(slice / chunks);
        const double busiest = std::max(wire(slice), 2.0 * chunks * link.overhead_us);
        return std::min(step, busiest) * (chunks - 1) / chunks;
    }
};

double allreduce_us(const Plan& plan, const Costs& costs) {
    const LinkModel& link = costs.link;
    const double n = costs.bytes;
    const int lg = log2_rounded_up(costs.rank_count);
    const bool is_pair = costs.rank_count == 2;
    switch (plan.algorithm) {
        case Algorithm::ring:
            return costs.ring_pass(plan.chunks, true) + costs.ring_pass(plan.chunks, false) + costs.ring_fill(plan.chunks);
        case Algorithm::tree:
            return costs.pipeline(2 * lg, plan.chunks, n, lg * n, lg * n, lg * n, 2 * lg);
        case Algorithm::double_tree:
            // Each chunk is a pair of pieces of n / 2, one per tree; an inner node sends a piece to two children.
            return costs.pipeline(2 * lg, plan.chunks, n, lg * n, is_pair ? n : 2.0 * n, n, is_pair ? 4 : 8) +
                   2 * lg * 2.0 * link.overhead_us;
        default:
            break;
    }
    const Shape shape = shape_for(costs.rank_count, plan.radix);
    const bool folds = shape.participants < costs.rank_count;
    const double folding = folds ? 2.0 * link.message_us() + costs.wire(2.0 * n) + costs.sum(n) : 0.0;
    const Costs inner{.link = link, .bytes = n, .rank_count = shape.participants};
    if (plan.algorithm == Algorithm::exchange) return folding + inner.exchange(shape.factors);
    return folding + inner.reduce_scatter(shape.factors) + inner.allgather(shape.factors);
}

double sliced_us(const Plan& plan, const Costs& costs) {
    const bool sums = plan.collective == Collective::reduce_scatter;
    if (plan.algorithm == Algorithm::ring) return costs.ring_pass(plan.chunks, sums) + costs.ring_fill(plan.chunks);
    const Shape shape = shape_for(costs.rank_count, plan.radix);
    const bool folds = shape.participants < costs.rank_count;
    const double folding =
        folds ? 2.0 * costs.link.message_us() + costs.wire(costs.bytes) + costs.sum(sums ? costs.bytes : 0.0) : 0.0;
    const Costs inner{.link = costs.link, .bytes = costs.bytes, .rank_count = shape.participants};
    return folding + (sums ? inner.reduce_scatter(shape.factors) : inner.allgather(shape.factors));
}

double rooted_us(const Plan& plan, const Costs& costs) {
    const double n = costs.bytes;
    const double to_add = plan.collective == Collective::reduce ? n : 0.0;
    const int lg = log2_rounded_up(costs.rank_count);
    switch (plan.algorithm) {
        case Algorithm::ring:
            return costs.pipeline(costs.rank_count - 1, plan.chunks, n, (costs.rank_count - 1) * to_add, n, to_add, 2);
        case Algorithm::tree:
            return costs.pipeline(lg, plan.chunks, n, lg * to_add, lg * n, lg * to_add, lg);
        case Algorithm::double_tree:
            return costs.pipeline(lg, plan.chunks, n, lg * to_add, n, to_add, 4) + lg * costs.link.overhead_us;
        default:
            break;
    }
    double total = 0.0;
    for (const int factor : equal_factors(plan.radix, costs.rank_count))
        total += costs.round(factor, n) + costs.sum((factor - 1) * to_add);
    return total;
}

// log_k p rounds of L + k o each.
struct TextbookRounds {
    TextbookRounds(int wanted_radix, int rank_count)
        : radix(std::min(wanted_radix, rank_count)), number(static_cast<double>(equal_factors(wanted_radix, rank_count).size())) {}
    double latency_us(const LinkModel& link) const { return number * (link.latency_us + radix * link.overhead_us); }

    int radix;
    double number;
};

}  // namespace

double closed_form_us(Algorithm algorithm, int radix, int rank_count, int64_t bytes, const LinkModel& link) {
    if (rank_count == 1) return 0.0;
    const Costs costs{.link = link, .bytes = static_cast<double>(bytes), .rank_count = rank_count};
    const double lg = log2_rounded_up(rank_count);
    switch (algorithm) {
        case Algorithm::exchange: {
            const TextbookRounds rounds(radix, rank_count);
            const double moved = rounds.number * (rounds.radix - 1) * costs.bytes;
            return rounds.latency_us(link) + costs.wire(moved) + costs.sum(moved);
        }
        case Algorithm::halving_doubling: {
            const TextbookRounds rounds(radix, rank_count);
            return 2.0 * rounds.latency_us(link) + costs.wire(2.0 * costs.share()) + costs.sum(costs.share());
        }
        case Algorithm::ring:
            return 2.0 * (rank_count - 1) * link.message_us() + costs.wire(2.0 * costs.share());
        case Algorithm::tree:
            return lg * (2.0 * link.message_us() + costs.wire(2.0 * costs.bytes) + costs.sum(costs.bytes));
        case Algorithm::double_tree: {
            const double way = std::sqrt(2.0 * lg * (link.latency_us + 4.0 * link.overhead_us));
            const double body = std::sqrt(costs.wire(2.0 * costs.bytes));
            return (way + body) * (way + body);
        }
    }
    return 0.0;
}

double predicted_us(const Plan& plan, int rank_count, int64_t bytes, const LinkModel& link) {
    if (rank_count == 1 || bytes == 0) return 0.0;
    const Costs costs{.link = link, .bytes = static_cast<double>(bytes), .rank_count = rank_count};
    switch (plan.collective) {
        case Collective::allreduce:
            return allreduce_us(plan, costs);
        case Collective::reduce_scatter:
        case Collective::allgather:
            return sliced_us(plan, costs);
        case Collective::broadcast:
        case Collective::reduce:
            return rooted_us(plan, costs);
    }
    return 0.0;
}

LinkModel shared_link(LinkModel link, int sharers) {
    link.wire_ns_per_byte *= sharers;
    return link;
}

double predicted_hierarchical_us(const Plan& between_nodes, int node_count, int local_count, int64_t bytes, const LinkModel& local,
                                 const LinkModel& remote) {
    const double inter = predicted_us(between_nodes, node_count, bytes / local_count, shared_link(remote, local_count));
    if (local_count == 1) return inter;
    const Plan direct{.collective = Collective::reduce_scatter, .algorithm = Algorithm::halving_doubling, .radix = local_count};
    const Plan back{.collective = Collective::allgather, .algorithm = Algorithm::halving_doubling, .radix = local_count};
    return predicted_us(direct, local_count, bytes, local) + inter + predicted_us(back, local_count, bytes, local);
}

}  // namespace lockstep::schedule
