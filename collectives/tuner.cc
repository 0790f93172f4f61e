#include "collectives/tuner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "collectives/probe.h"
#include "collectives/schedule/cost_model.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/host.h"
#include "core/log.h"

namespace lockstep {

using schedule::Algorithm;
using schedule::Collective;
using schedule::Plan;

namespace {

constexpr int64_t kPatienceNs = 100'000'000;
constexpr int kTagBits = 16;  // the engine's: a number's tags
constexpr int64_t kBudgetMs = 450;
constexpr int64_t kNodeBudgetMs = 150;
constexpr double kTrialUs = 60'000.0;  // of repeats
constexpr double kLongestTrialUs = 300'000.0;
constexpr int64_t kTrialBytes[] = {1 << 10, 16 << 10, 256 << 10, 4 << 20, 32 << 20};

std::vector<int> all_ranks(int rank_count) {
    std::vector<int> ranks(static_cast<size_t>(rank_count));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

// What must be equal on all ranks, or a rank's wish would be passed over in silence.
std::string settings_text(const PlanOptions& plan) {
    return fmt::format("{} {} {} {} {}", plan.algorithm, plan.radix, plan.chunks, plan.hierarchical_from_bytes,
                       static_cast<int>(plan.order));
}

int32_t repeats_of(const Candidate& trial) { return static_cast<int32_t>(std::clamp(kTrialUs / trial.predicted_us, 5.0, 100.0)); }

std::span<std::byte> bytes_of(auto& value) { return std::as_writable_bytes(std::span(&value, 1)); }

}  // namespace

RankLayout layout_of(std::span<const RankPlace> places, bool through_nodes) {
    RankLayout layout{.rank_count = static_cast<int>(places.size())};
    if (!through_nodes) return layout;
    std::set<int32_t> nodes;
    layout.local_count = places.front().local_size;
    for (const RankPlace& place : places) {
        nodes.insert(place.node);
        layout.local_count = std::min(layout.local_count, place.local_size);
    }
    layout.node_count = static_cast<int>(nodes.size());
    const int local_count = places.front().local_size;
    layout.keeps_rank_tree =
        std::has_single_bit(static_cast<unsigned>(local_count)) &&
        std::all_of(places.begin(), places.end(), [&](const RankPlace& place) {
            const RankPlace& first = places[static_cast<size_t>(place.rank / local_count * local_count)];
            return place.local_size == local_count && place.local_rank == place.rank % local_count && place.node == first.node;
        });
    return layout;
}

Tuner::Tuner(Transport& transport, const World& world, const CommunicatorOptions& options, std::string_view backend)
    : transport_(transport),
      world_(world),
      options_(options),
      backend_(backend),
      engine_(transport, world.rank, {all_ranks(world.size)}, EngineOptions{}),
      places_(static_cast<size_t>(world.size)) {
    static_assert(sizeof(RankPlace) % 16 == 0, "a rank's part is a slice of the whole");
    places_[static_cast<size_t>(world.rank)] = {.node = world.node,
                                                .local_rank = world.local_rank,
                                                .local_size = world.local_size,
                                                .rank = world.rank,
                                                .host_hash = hash_text(host_name()),
                                                .settings_hash = hash_text(settings_text(options.plan))};
    const Plan plan{
        .collective = Collective::allgather, .algorithm = Algorithm::halving_doubling, .radix = std::clamp(world.size, 2, 8)};
    run(plan, std::as_writable_bytes(std::span(places_)), DataType::u8, "places of the ranks");
    for (const RankPlace& place : places_) {
        if (place.settings_hash == places_.front().settings_hash) continue;
        throw ConfigError(fmt::format(
            "ranks disagree: rank {} and rank 0 were given different comm.algorithm, comm.algorithm_radix, comm.chunks, "
            "comm.hierarchical_from or run.reproducible; give all ranks the same",
            place.rank));
    }
}

void Tuner::run(const Plan& plan, std::span<std::byte> data, DataType type, std::string_view what) {
    Operation operation{.kind = plan.collective == Collective::allreduce   ? OperationKind::allreduce
                                : plan.collective == Collective::broadcast ? OperationKind::broadcast
                                                                           : OperationKind::allgather,
                        .label = {.what = what},
                        .byte_count = data.size()};
    operation.sequence = next_number();
    const int handle = engine_.start({.number = operation.sequence,
                                      .operation = OperationSignature::of(operation, -1),
                                      .plan = plan,
                                      .format = {type, type},
                                      .data = data.data(),
                                      .element_count = static_cast<int64_t>(data.size() / bytes_per_element(type))});
    while (!engine_.finished(handle)) transport_.progress(engine_.advance() ? 0 : kPatienceNs);
    engine_.release(handle);
}

void Tuner::from_rank_zero(std::span<std::byte> data, std::string_view what) {
    const int radix = std::clamp(world_.size, 2, 8);
    run({.collective = Collective::broadcast, .algorithm = Algorithm::exchange, .radix = radix}, data, DataType::u8, what);
}

std::string Tuner::text_from_rank_zero(std::string text) {
    uint64_t bytes = text.size();
    from_rank_zero(bytes_of(bytes), "length of the schedule table");
    text.resize(bytes);
    if (bytes > 0) from_rank_zero(std::as_writable_bytes(std::span(text)), "schedule table");
    return text;
}

// Where values are rounded on the wire, a schedule decides where: a table that may differ from start to start would change bits.
bool Tuner::measures() const {
    const bool changes_bits = options_.wire != DataType::f32 && options_.plan.order != SumOrder::any;
    return options_.plan.probing != Probing::never && !changes_bits;
}

std::string Tuner::fingerprint() const {
    std::string text = fmt::format("lockstep {} backend {} interface {} settings {}\n", LOCKSTEP_VERSION, backend_,
                                   options_.interface, settings_text(options_.plan));
    for (const RankPlace& place : places_) {
        text += fmt::format("rank {} node {} {}/{} host {:016x}\n", place.rank, place.node, place.local_rank, place.local_size,
                            place.host_hash);
    }
    return text;
}

std::optional<Tuning> Tuner::kept_tuning() const {
    if (options_.plan.probing != Probing::unknown) return std::nullopt;
    return load_tuning(tuning_file(options_.plan.cache_folder, fingerprint()), fingerprint());
}

Tuning Tuner::agree(bool through_nodes) {
    const RankLayout layout = layout_of(places_, through_nodes);
    const Tuning by_default = decide_tuning(layout, std::nullopt, {}, options_.plan);  // throws on all ranks alike
    std::string text;
    if (world_.rank == 0) {
        const std::optional<Tuning> kept = measures() ? kept_tuning() : by_default;
        if (kept) text = kept->to_text();
    }
    text = text_from_rank_zero(std::move(text));
    if (text.empty()) text = text_from_rank_zero(measure(layout));
    return Tuning::from_text(text);
}

// Rank 0's text.
std::string Tuner::measure(const RankLayout& layout) {
    const MeasuredLinks links = measure_links(layout);
    uint64_t thorough = options_.plan.probing == Probing::thorough ? 1 : 0;
    from_rank_zero(bytes_of(thorough), "kind of measurement");
    const std::vector<MeasuredFactor> factors = thorough != 0 ? measure_factors(links.all) : std::vector<MeasuredFactor>();
    if (world_.rank != 0) return {};
    Tuning tuning = decide_tuning(layout, links, factors, options_.plan);
    tuning.origin = thorough != 0 ? "links and schedules measured by lockstep tune" : "links measured at the start";
    if (thorough != 0) save_tuning(tuning_file(options_.plan.cache_folder, fingerprint()), fingerprint(), tuning);
    return tuning.to_text();
}

MeasuredLinks Tuner::measure_links(const RankLayout& layout) {
    MeasuredLinks links;
    const ProbeOptions of_all{.budget_ms = kBudgetMs, .tag = next_number() << kTagBits};
    links.all = probe(transport_, all_ranks(world_.size), world_.rank, of_all).link;
    const ProbeOptions of_node{.budget_ms = kNodeBudgetMs, .tag = next_number() << kTagBits};
    if (layout.node_count == 1) return links;
    std::vector<int> neighbours;
    for (const RankPlace& place : places_) {
        if (place.node == world_.node) neighbours.push_back(place.rank);
    }
    const auto self = std::find(neighbours.begin(), neighbours.end(), world_.rank) - neighbours.begin();
    if (neighbours.size() > 1) links.node = probe(transport_, neighbours, static_cast<int>(self), of_node).link;
    return links;
}

// Each algorithm at its predicted best, at a few sizes; rank 0 says what comes next.
std::vector<MeasuredFactor> Tuner::measure_factors(const LinkModel& link) {
    std::vector<MeasuredFactor> factors;
    std::vector<Candidate> trials;
    std::vector<int64_t> bytes_of_trials;
    for (const int64_t bytes : kTrialBytes) {
        std::set<Algorithm> seen;
        for (const Candidate& one :
             candidates(Collective::allreduce, world_.size, bytes, link, {}, selector_options(options_.plan))) {
            if (one.predicted_us > kLongestTrialUs || !seen.insert(one.plan.algorithm).second) continue;
            trials.push_back(one);
            bytes_of_trials.push_back(bytes);
        }
    }
    for (size_t next = 0;; ++next) {
        Trial trial;
        if (next < trials.size()) trial = {trials[next].plan, repeats_of(trials[next]), bytes_of_trials[next]};
        from_rank_zero(bytes_of(trial), "next trial");
        if (trial.repeats == 0) return factors;
        const double least_us = least_time_us(trial);
        // Other ranks may have other lists; only rank 0's is used.
        if (world_.rank == 0) factors.push_back({trial.plan.algorithm, trial.bytes, least_us / trials[next].predicted_us});
    }
}

// Of the slowest rank. The least and not the median of the repeats: what else goes on on the machines only ever adds.
double Tuner::least_time_us(const Trial& trial) {
    std::vector<float> data(static_cast<size_t>(trial.bytes) / sizeof(float));
    std::vector<double> times_us;
    for (int32_t repeat = 0; repeat < trial.repeats; ++repeat) {
        const int64_t start_ns = now_ns();
        run(trial.plan, std::as_writable_bytes(std::span(data)), DataType::f32, "trial");
        times_us.push_back(static_cast<double>(now_ns() - start_ns) * 1e-3);
    }
    std::vector<std::array<double, 2>> all(static_cast<size_t>(world_.size));  // 16 bytes for each rank
    all[static_cast<size_t>(world_.rank)][0] = *std::min_element(times_us.begin(), times_us.end());
    run({.collective = Collective::allgather, .algorithm = Algorithm::halving_doubling, .radix = std::clamp(world_.size, 2, 8)},
        std::as_writable_bytes(std::span(all)), DataType::u8, "times of a trial");
    double slowest_us = 0.0;
    for (const auto& [time_us, unused] : all) slowest_us = std::max(slowest_us, time_us);
    return slowest_us;
}

}  // namespace lockstep
