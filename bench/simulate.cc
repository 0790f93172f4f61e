#include "bench/simulate.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "collectives/schedule/cost_model.h"
#include "collectives/schedule/simulator.h"
#include "core/error.h"
#include "models/models.h"

namespace lockstep::bench {

namespace {

using schedule::Algorithm;
using schedule::Collective;
using schedule::Plan;

void check_options(const SimulateOptions& options) {
    for (const int ranks : options.ranks) {
        if (ranks >= 1 && ranks % options.local_count == 0) continue;
        throw ConfigError(fmt::format("simulate: {} ranks do not fill nodes of {}; choose a multiple", ranks, options.local_count));
    }
}

// The best plan of each algorithm by prediction, in the order of the algorithms.
std::vector<Candidate> best_of_each(int rank_count, int64_t bytes, const LinkModel& link, const SelectorOptions& selection) {
    std::map<Algorithm, Candidate> best;
    for (const Candidate& candidate : candidates(Collective::allreduce, rank_count, bytes, link, {}, selection)) {
        best.emplace(candidate.plan.algorithm, candidate);  // cheapest come first
    }
    std::vector<Candidate> list;
    for (const auto& [algorithm, candidate] : best) list.push_back(candidate);
    return list;
}

SimulatedRow row_of(int ranks, int64_t bytes, const Plan& plan, bool hierarchical, const SimulateOptions& options) {
    const schedule::NetworkModel network{.local = options.local, .remote = options.remote, .local_count = options.local_count};
    const int nodes = ranks / options.local_count;
    const schedule::SimulatedRun run =
        hierarchical ? simulate_hierarchical(plan, nodes, bytes, network) : simulate_flat(plan, ranks, bytes, network);
    const double predicted_us =
        hierarchical ? schedule::predicted_hierarchical_us(plan, nodes, options.local_count, bytes, options.local, options.remote)
                     : schedule::predicted_us(plan, ranks, bytes, schedule::shared_link(options.remote, options.local_count));
    return {.ranks = ranks,
            .bytes = bytes,
            .plan = plan,
            .hierarchical = hierarchical,
            .time_us = run.time_us,
            .predicted_us = predicted_us,
            .messages = run.messages,
            .remote_bytes = run.remote_bytes,
            .by_events = run.by_events};
}

}  // namespace

std::vector<SimulatedRow> simulate_allreduce(const SimulateOptions& options) {
    check_options(options);
    std::vector<SimulatedRow> rows;
    for (const int ranks : options.ranks) {
        for (const int64_t bytes : options.sizes) {
            const size_t first = rows.size();
            const LinkModel flat_link = schedule::shared_link(options.remote, options.local_count);
            for (const Candidate& candidate : best_of_each(ranks, bytes, flat_link, options.selection)) {
                rows.push_back(row_of(ranks, bytes, candidate.plan, false, options));
            }
            if (options.local_count > 1) {
                const int nodes = ranks / options.local_count;
                for (const Candidate& candidate : best_of_each(nodes, bytes / options.local_count, flat_link, options.selection)) {
                    rows.push_back(row_of(ranks, bytes, candidate.plan, true, options));
                }
            }
            const auto fastest =
                std::min_element(rows.begin() + static_cast<std::ptrdiff_t>(first), rows.end(),
                                 [](const SimulatedRow& left, const SimulatedRow& right) { return left.time_us < right.time_us; });
            fastest->fastest = true;
        }
    }
    return rows;
}

std::vector<UnfusedRow> simulate_unfused(const SimulateOptions& options, const std::string& model) {
    check_options(options);
    std::map<int64_t, int64_t> tensors_by_bytes;
    for (const ParameterOwner& owner : backward_order(build_model({.arch = model}))) {
        if (is_trainable(owner.spec.kind))
            ++tensors_by_bytes[element_count(owner.spec.shape) * static_cast<int64_t>(sizeof(float))];
    }
    const schedule::NetworkModel network{.local = options.local, .remote = options.remote, .local_count = options.local_count};
    std::vector<UnfusedRow> rows;
    for (const int ranks : options.ranks) {
        // The published comparison is of these two; radix 2 and whole slices are their classic forms.
        for (const Algorithm algorithm : {Algorithm::halving_doubling, Algorithm::ring}) {
            UnfusedRow row{.ranks = ranks, .plan = {.algorithm = algorithm, .radix = std::max(options.selection.radix, 2)}};
            for (const auto& [bytes, tensors] : tensors_by_bytes) {
                row.tensors += tensors;
                row.bytes += tensors * bytes;
                row.time_us += static_cast<double>(tensors) * simulate_flat(row.plan, ranks, bytes, network).time_us;
            }
            rows.push_back(row);
        }
    }
    return rows;
}

}  // namespace lockstep::bench
