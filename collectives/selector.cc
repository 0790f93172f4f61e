#include "collectives/selector.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "collectives/schedule/cost_model.h"
#include "core/error.h"

namespace lockstep {

using schedule::Algorithm;
using schedule::Collective;
using schedule::Plan;

namespace {

constexpr Collective kAllCollectives[] = {Collective::allreduce, Collective::reduce_scatter, Collective::allgather,
                                          Collective::broadcast, Collective::reduce};
constexpr Algorithm kAllAlgorithms[] = {Algorithm::exchange, Algorithm::halving_doubling, Algorithm::ring, Algorithm::tree,
                                        Algorithm::double_tree};
constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * 1024;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr double kAsGood = 1.03;     // a plan stays in the table until another is better by more
constexpr int kWidestOneShot = 128;  // more connections at once help nobody

bool has_radix(Algorithm algorithm) { return algorithm == Algorithm::exchange || algorithm == Algorithm::halving_doubling; }

std::optional<Algorithm> forced_algorithm(const SelectorOptions& options) {
    if (options.radix != 0 && options.radix < 2) {
        throw ConfigError(fmt::format("comm.algorithm_radix is {}; choose 2 or more, or 0 for automatic", options.radix));
    }
    if (options.chunks < 0)
        throw ConfigError(fmt::format("comm.chunks is {}; choose 1 or more, or 0 for automatic", options.chunks));
    if (options.algorithm == "auto") return std::nullopt;
    for (const Algorithm algorithm : kAllAlgorithms) {
        if (to_string(algorithm) == options.algorithm) return algorithm;
    }
    throw ConfigError(fmt::format(
        "comm.algorithm `{}` is unknown; choose auto, exchange, halving_doubling, ring, tree or double_tree", options.algorithm));
}

std::vector<int> radices(int rank_count, const SelectorOptions& options) {
    if (options.radix != 0) return {options.radix};
    std::vector<int> list;
    for (const int radix : {2, 4, 8, 16}) {
        if (radix < rank_count) list.push_back(radix);
    }
    if (rank_count <= kWidestOneShot) list.push_back(std::max(rank_count, 2));
    return list;
}

std::vector<int> chunk_counts(const SelectorOptions& options) {
    if (options.chunks != 0) return {options.chunks};
    return {1, 2, 4, 8, 16, 32, 64};
}

double factor_for(Algorithm algorithm, int64_t bytes, std::span<const MeasuredFactor> factors) {
    double best = 1.0;
    double smallest_ratio = std::numeric_limits<double>::infinity();
    for (const MeasuredFactor& measured : factors) {
        if (measured.algorithm != algorithm) continue;
        const double ratio = std::abs(std::log2(static_cast<double>(std::max<int64_t>(bytes, 1))) -
                                      std::log2(static_cast<double>(std::max<int64_t>(measured.bytes, 1))));
        if (ratio >= smallest_ratio) continue;
        smallest_ratio = ratio;
        best = measured.factor;
    }
    return best;
}

std::vector<Plan> plans_for(Collective collective, Algorithm algorithm, int rank_count, const SelectorOptions& options) {
    std::vector<Plan> plans;
    if (has_radix(algorithm)) {
        for (const int radix : radices(rank_count, options)) {
            plans.push_back({.collective = collective, .algorithm = algorithm, .radix = radix});
        }
    } else {
        for (const int chunks : chunk_counts(options)) {
            plans.push_back({.collective = collective, .algorithm = algorithm, .chunks = chunks});
        }
    }
    return plans;
}

// Without those that leave the rank tree, unless nothing is left then.
void keep_rank_tree(std::vector<Plan>& plans, int rank_count) {
    const auto leaves = [&](const Plan& plan) { return !follows_rank_tree(plan, rank_count); };
    if (!std::all_of(plans.begin(), plans.end(), leaves)) std::erase_if(plans, leaves);
}

// Which algorithms may be taken: the forced one, or all that exist for the collective.
std::vector<Algorithm> algorithms_for(Collective collective, const std::optional<Algorithm>& forced) {
    if (forced && exists(collective, *forced)) return {*forced};
    std::vector<Algorithm> list;
    for (const Algorithm algorithm : kAllAlgorithms) {
        if (exists(collective, algorithm)) list.push_back(algorithm);
    }
    return list;
}

}  // namespace

std::vector<Candidate> candidates(Collective collective, int rank_count, int64_t bytes, const LinkModel& link,
                                  std::span<const MeasuredFactor> factors, const SelectorOptions& options) {
    const std::optional<Algorithm> forced = forced_algorithm(options);
    std::vector<Plan> plans;
    for (const Algorithm algorithm : algorithms_for(collective, forced)) {
        const std::vector<Plan> more = plans_for(collective, algorithm, rank_count, options);
        plans.insert(plans.end(), more.begin(), more.end());
    }
    if (options.rank_tree) keep_rank_tree(plans, rank_count);
    std::vector<Candidate> list;
    for (const Plan& plan : plans) {
        list.push_back({plan, factor_for(plan.algorithm, bytes, factors) * predicted_us(plan, rank_count, bytes, link)});
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const Candidate& left, const Candidate& right) { return left.predicted_us < right.predicted_us; });
    return list;
}

namespace {

// Sizes at which the table is decided: eight for each doubling, so a border is at most 9 % off.
std::vector<int64_t> decided_sizes() {
    std::vector<int64_t> sizes;
    for (int eighth = 2 * 8; eighth <= 30 * 8; ++eighth) sizes.push_back(std::llround(std::exp2(eighth / 8.0)));
    return sizes;
}

std::vector<Selector::Row> rows_by_prediction(Collective collective, int rank_count, const LinkModel& link,
                                              std::span<const MeasuredFactor> factors, const SelectorOptions& options) {
    std::vector<Selector::Row> rows;
    for (const int64_t bytes : decided_sizes()) {
        const std::vector<Candidate> list = candidates(collective, rank_count, bytes, link, factors, options);
        const auto is_as_good = [&](const Candidate& one) {
            return one.plan == rows.back().choice.plan && one.predicted_us <= kAsGood * list.front().predicted_us;
        };
        if (rows.empty() || std::none_of(list.begin(), list.end(), is_as_good)) rows.push_back({bytes, list.front()});
        rows.back().up_to_bytes = bytes;
    }
    rows.back().up_to_bytes = kNoLimit;
    return rows;
}

// `wanted`, or with options.rank_tree the plan nearest to it that follows the tree: all ranks at once instead of a narrower radix,
// halving and doubling instead of a ring, and a tree where that would be too many connections.
Plan nearest_on_tree(Plan wanted, int rank_count, const SelectorOptions& options) {
    if (!options.rank_tree || follows_rank_tree(wanted, rank_count)) return wanted;
    const std::optional<Algorithm> forced = forced_algorithm(options);
    std::vector<Plan> nearest{wanted, wanted, wanted, wanted};
    nearest[0].radix = std::max(rank_count, 2);
    nearest[1].algorithm = nearest[2].algorithm = Algorithm::halving_doubling;
    nearest[1].radix = 4;
    nearest[2].radix = std::max(rank_count, 2);
    nearest[3].algorithm = Algorithm::tree;
    nearest[3].chunks = 16;
    for (Plan plan : nearest) {
        if (!exists(plan.collective, plan.algorithm) || !follows_rank_tree(plan, rank_count)) continue;
        if (forced && exists(plan.collective, *forced) && (plan.algorithm != *forced || options.radix != 0)) continue;
        if (has_radix(plan.algorithm) && plan.radix > kWidestOneShot) continue;
        if (has_radix(plan.algorithm)) plan.chunks = 1;
        if (!has_radix(plan.algorithm)) plan.radix = 2;
        return plan;
    }
    return wanted;
}

// What is known of no link in particular: see docs/collectives.md.
std::vector<Selector::Row> default_rows(Collective collective, int rank_count, const SelectorOptions& options) {
    const std::optional<Algorithm> forced = forced_algorithm(options);
    const int wide = options.radix != 0 ? options.radix : std::clamp(rank_count, 2, 8);
    const int middle = options.radix != 0 ? options.radix : 4;
    const int chunks = options.chunks != 0 ? options.chunks : 4;
    const auto row = [&](int64_t up_to, Algorithm algorithm, int radix) {
        Plan plan{.collective = collective, .algorithm = algorithm};
        if (has_radix(algorithm)) plan.radix = radix;
        if (!has_radix(algorithm)) plan.chunks = chunks;
        return Selector::Row{up_to, {nearest_on_tree(plan, rank_count, options), 0.0}};
    };
    if (forced && exists(collective, *forced)) return {row(kNoLimit, *forced, wide)};
    if (rank_count <= 2) return {row(kNoLimit, Algorithm::exchange, 2)};
    if (collective == Collective::broadcast || collective == Collective::reduce) {
        return {row(64 * kKiB, Algorithm::exchange, 4), row(kNoLimit, Algorithm::double_tree, 0)};
    }
    const bool trees = collective == Collective::allreduce && rank_count >= 256;
    const int64_t ring_above = trees ? 64 * kMiB : rank_count * 4 * kMiB;
    return {row(64 * kKiB - 1, collective == Collective::allreduce ? Algorithm::exchange : Algorithm::halving_doubling, wide),
            row(ring_above - 1, Algorithm::halving_doubling, middle),
            row(kNoLimit, trees ? Algorithm::double_tree : Algorithm::ring, 0)};
}

}  // namespace

Selector Selector::decide(int rank_count, const std::optional<LinkModel>& link, std::span<const MeasuredFactor> factors,
                          const SelectorOptions& options) {
    check(rank_count >= 1, "a selector is for at least one rank");
    Selector selector;
    selector.rank_count_ = rank_count;
    for (const Collective collective : kAllCollectives) {
        selector.rows_[static_cast<size_t>(collective)] = link ? rows_by_prediction(collective, rank_count, *link, factors, options)
                                                               : default_rows(collective, rank_count, options);
    }
    return selector;
}

Plan Selector::choose(Collective collective, int64_t bytes, int root) const {
    const std::span<const Row> table = rows(collective);
    const auto row = std::find_if(table.begin(), table.end(), [&](const Row& one) { return bytes <= one.up_to_bytes; });
    check(row != table.end(), "the last row of a selector's table has no limit");
    Plan plan = row->choice.plan;
    plan.root = root;
    return plan;
}

std::string Selector::table() const {
    std::string text;
    for (const Collective collective : kAllCollectives) {
        text += fmt::format("{} of {} ranks\n", to_string(collective), rank_count_);
        for (const Row& row : rows(collective)) {
            const std::string limit = row.up_to_bytes == kNoLimit ? "above" : fmt::format("up to {} B", row.up_to_bytes);
            Plan how = row.choice.plan;
            how.collective = Collective::allreduce;  // the collective is said already
            text += fmt::format("  {:>18}  {}\n", limit, describe(how));
        }
    }
    return text;
}

}  // namespace lockstep
