#include "collectives/plan_choice.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep {

namespace {

using schedule::Algorithm;
using schedule::Collective;
using schedule::Plan;

constexpr size_t kPieceBytes = size_t{256} << 10;  // of a pipeline: long against the cost of a message
constexpr int32_t kMostPieces = 16;
constexpr int kFewRanks = 8;

constexpr std::array kAlgorithms = {Algorithm::exchange, Algorithm::halving_doubling, Algorithm::ring, Algorithm::tree,
                                    Algorithm::double_tree};

bool has_radix(Algorithm algorithm) { return algorithm == Algorithm::exchange || algorithm == Algorithm::halving_doubling; }

}  // namespace

PlanChoice::PlanChoice(const PlanOptions& options) : options_(options) {
    for (const Algorithm algorithm : kAlgorithms) {
        if (to_string(algorithm) == options.algorithm) named_ = algorithm;
    }
    if (!named_ && options.algorithm != "auto" && options.algorithm != "hierarchical") {
        throw ConfigError(
            fmt::format("comm.algorithm `{}` is unknown; choose auto, exchange, halving_doubling, ring, tree, double_tree "
                        "or hierarchical",
                        options.algorithm));
    }
    if (options.radix != 0 && (options.radix < 2 || !named_ || !has_radix(*named_))) {
        throw ConfigError(
            fmt::format("comm.algorithm_radix={} needs a radix of at least 2 and comm.algorithm=exchange or "
                        "halving_doubling, not {}; leave it at auto",
                        options.radix, options.algorithm));
    }
    if (options.chunks != 0 && (options.chunks < 1 || !named_ || has_radix(*named_))) {
        throw ConfigError(
            fmt::format("comm.chunks={} needs at least 1 and comm.algorithm=ring, tree or double_tree, not {}; leave it at "
                        "auto",
                        options.chunks, options.algorithm));
    }
}

int32_t PlanChoice::pieces(size_t bytes_in_flight) const {
    if (options_.chunks > 0) return static_cast<int32_t>(options_.chunks);
    return static_cast<int32_t>(std::clamp<size_t>(bytes_in_flight / kPieceBytes, 1, kMostPieces));
}

Plan PlanChoice::choose(Collective collective, size_t bytes, int rank_count, int root) const {
    Plan plan = choose_freely(collective, bytes, rank_count);
    if (named_ && exists(collective, *named_)) {
        plan.algorithm = *named_;
        if (has_radix(plan.algorithm)) {
            plan.radix = options_.radix > 0 ? static_cast<int32_t>(options_.radix) : std::clamp(rank_count, 2, kFewRanks);
            plan.chunks = 1;
        }
    }
    if (!has_radix(plan.algorithm)) {
        const size_t share = plan.algorithm == Algorithm::ring && collective != Collective::broadcast
                                 ? bytes / static_cast<size_t>(rank_count)
                                 : bytes;
        plan.radix = 2;
        plan.chunks = pieces(share);
    }
    plan.root = root;
    return plan;
}

// Exchange small ones in one round of many messages; above, halving and doubling with as wide a radix moves the fewest bytes; the
// ring, with fewer connections at work, where latency no longer counts.
Plan PlanChoice::choose_freely(Collective collective, size_t bytes, int rank_count) const {
    const int32_t radix = std::clamp(rank_count, 2, kFewRanks);
    Plan plan{.collective = collective, .algorithm = Algorithm::halving_doubling, .radix = radix};
    const bool shares_are_large = bytes / static_cast<size_t>(rank_count) >= static_cast<size_t>(options_.ring_from_bytes);
    if (collective == Collective::broadcast || collective == Collective::reduce) {
        plan.algorithm = rank_count <= kFewRanks && bytes < kPieceBytes ? Algorithm::exchange : Algorithm::tree;
    } else if (shares_are_large && rank_count > kFewRanks) {
        plan.algorithm = Algorithm::ring;
    } else if (collective == Collective::allreduce &&
               (rank_count == 2 || bytes < static_cast<size_t>(options_.exchange_below_bytes))) {
        plan.algorithm = Algorithm::exchange;
    }
    return plan;
}

}  // namespace lockstep
