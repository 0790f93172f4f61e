#include "collectives/tuning.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "collectives/schedule/cost_model.h"
#include "core/error.h"

namespace lockstep {

using schedule::Algorithm;
using schedule::Collective;
using schedule::Plan;

namespace {

constexpr int64_t kHierarchicalFrom = 16 << 10;  // of the default table
constexpr int64_t kLargestCompared = int64_t{1} << 30;

constexpr std::array kAlgorithms = {Algorithm::exchange, Algorithm::halving_doubling, Algorithm::ring, Algorithm::tree,
                                    Algorithm::double_tree};

std::optional<Algorithm> named_algorithm(const PlanOptions& options) {
    for (const Algorithm algorithm : kAlgorithms) {
        if (to_string(algorithm) == options.algorithm) return algorithm;
    }
    return std::nullopt;
}

bool has_radix(Algorithm algorithm) { return algorithm == Algorithm::exchange || algorithm == Algorithm::halving_doubling; }

}  // namespace

SelectorOptions selector_options(const PlanOptions& options) {
    return {.algorithm = options.algorithm == "hierarchical" ? "auto" : options.algorithm,
            .radix = static_cast<int>(options.radix),
            .chunks = static_cast<int>(options.chunks),
            .rank_tree = options.order != SumOrder::any};
}

void check_plan_options(const PlanOptions& options, int rank_count) {
    const std::optional<Algorithm> named = named_algorithm(options);
    if (!named && options.algorithm != "auto" && options.algorithm != "hierarchical") {
        throw ConfigError(
            fmt::format("comm.algorithm `{}` is unknown; choose auto, exchange, halving_doubling, ring, tree, double_tree "
                        "or hierarchical",
                        options.algorithm));
    }
    if (options.radix != 0 && (options.radix < 2 || !named || !has_radix(*named))) {
        throw ConfigError(
            fmt::format("comm.algorithm_radix={} needs a radix of at least 2 and comm.algorithm=exchange or "
                        "halving_doubling, not {}; leave it at auto",
                        options.radix, options.algorithm));
    }
    if (options.chunks != 0 && (options.chunks < 1 || !named || has_radix(*named))) {
        throw ConfigError(
            fmt::format("comm.chunks={} needs at least 1 and comm.algorithm=ring, tree or double_tree, not {}; leave it at "
                        "auto",
                        options.chunks, options.algorithm));
    }
    if (!named || options.order != SumOrder::of_any_world) return;
    // With numbers left open a plan that follows the tree is taken where there is one.
    const Plan plan = Selector::decide(rank_count, std::nullopt, {}, selector_options(options)).choose(Collective::allreduce, 4);
    if (follows_rank_tree(plan, rank_count)) return;
    throw ConfigError(
        fmt::format("run.reproducible=any_world needs sums along the one tree over the ranks, which {} does not follow on {} "
                    "ranks; set comm.algorithm=auto or run.reproducible=same_world",
                    describe(plan), rank_count));
}

namespace {

double through_nodes_us(const Selector& rails, int local_count, int64_t bytes, const MeasuredLinks& links) {
    LinkModel remote = links.all;
    remote.wire_ns_per_byte /= local_count;  // of a node that has the wire to itself
    LinkModel local = links.node;
    local.wire_ns_per_byte = local.sum_ns_per_byte;  // the data go through shared memory, as fast as it can be read and added
    const Plan between = rails.choose(Collective::allreduce, bytes / local_count);
    return schedule::predicted_hierarchical_us(between, rails.rank_count(), local_count, bytes, local, remote);
}

// From this size on, and for all larger ones, the way through the nodes is predicted to take no longer.
int64_t predicted_border(const RankLayout& layout, const MeasuredLinks& links, const Selector& flat, const Selector& rails) {
    int64_t border = Tuning::kNever;
    for (int64_t bytes = kLargestCompared; bytes >= 4; bytes /= 2) {
        const double through_us = through_nodes_us(rails, layout.local_count, bytes, links);
        const double flat_us =
            schedule::predicted_us(flat.choose(Collective::allreduce, bytes), layout.rank_count, bytes, links.all);
        if (through_us > flat_us) break;
        border = bytes;
    }
    return border;
}

int64_t hierarchical_from(const RankLayout& layout, const std::optional<MeasuredLinks>& links, const Tuning& tuning,
                          const PlanOptions& options) {
    if (layout.node_count == 1 || named_algorithm(options)) return Tuning::kNever;
    const bool forced = options.algorithm == "hierarchical" || options.hierarchical_from_bytes != PlanOptions::kChosen;
    if (options.order == SumOrder::of_any_world && !layout.keeps_rank_tree) {
        if (!forced) return Tuning::kNever;
        throw ConfigError(
            "run.reproducible=any_world needs sums along the one tree over the ranks; sums inside these nodes first do not follow "
            "it, because the nodes have different numbers of ranks or no power of two; leave comm.algorithm and "
            "comm.hierarchical_from at auto, or set run.reproducible=same_world");
    }
    if (options.hierarchical_from_bytes != PlanOptions::kChosen) return options.hierarchical_from_bytes;
    // Where the two ways differ in bits, all gradients take the same one, whatever their buckets and whatever was measured.
    if (forced || (options.order != SumOrder::any && !layout.keeps_rank_tree)) return 0;
    if (!links) return kHierarchicalFrom;
    return predicted_border(layout, *links, tuning.flat, *tuning.rails);
}

}  // namespace

Tuning decide_tuning(const RankLayout& layout, const std::optional<MeasuredLinks>& links, std::span<const MeasuredFactor> factors,
                     const PlanOptions& options) {
    const std::optional<LinkModel> link = links ? std::optional(links->all) : std::nullopt;
    Tuning tuning;
    tuning.links = links;
    tuning.flat = Selector::decide(layout.rank_count, link, factors, selector_options(options));
    if (layout.node_count > 1) tuning.rails = Selector::decide(layout.node_count, link, factors, selector_options(options));
    tuning.hierarchical_from_bytes = hierarchical_from(layout, links, tuning, options);
    return tuning;
}

std::optional<double> Tuning::predicted_us(int64_t bytes) const {
    if (!links) return std::nullopt;
    if (!through_nodes(bytes))
        return schedule::predicted_us(flat.choose(Collective::allreduce, bytes), flat.rank_count(), bytes, links->all);
    return through_nodes_us(*rails, flat.rank_count() / rails->rank_count(), bytes, *links);
}

std::string Tuning::describe_choice(int64_t bytes) const {
    if (!through_nodes(bytes)) return describe(flat.choose(Collective::allreduce, bytes));
    const int64_t slice = bytes * rails->rank_count() / flat.rank_count();
    return fmt::format("through the nodes, {} between them", describe(rails->choose(Collective::allreduce, slice)));
}

std::string Tuning::describe_links() const {
    const auto one = [](const LinkModel& link) {
        return fmt::format("L {:.1f} us, o {:.1f} us, {:.3f} ns/B on the wire, {:.3f} ns/B added", link.latency_us,
                           link.overhead_us, link.wire_ns_per_byte, link.sum_ns_per_byte);
    };
    if (!links) return {};
    return rails ? fmt::format("{}; inside a node {}", one(links->all), one(links->node)) : one(links->all);
}

std::string Tuning::table() const {
    std::string text = fmt::format("from {}\n", origin);
    if (links) text += fmt::format("links: {}\n", describe_links());
    const auto rows = [&](const Selector& selector, std::string_view who) {
        text += fmt::format("allreduce over {} {}\n", selector.rank_count(), who);
        for (const Selector::Row& row : selector.rows(Collective::allreduce)) {
            const std::string limit = row.up_to_bytes == kNever ? "above" : fmt::format("up to {} B", row.up_to_bytes);
            text += fmt::format("  {:>18}  {}\n", limit, describe(row.choice.plan));
        }
    };
    if (hierarchical_from_bytes > 0) rows(flat, "ranks");
    if (!rails || hierarchical_from_bytes == kNever) return text;
    text += fmt::format("from {} B on through the nodes, a slice for each rank of a node:\n", hierarchical_from_bytes);
    rows(*rails, "nodes");
    return text;
}

}  // namespace lockstep
