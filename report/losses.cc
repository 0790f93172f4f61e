#include "report/losses.h"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {

namespace {

const RankSummary* straggler_of(const RunAnalysis& analysis) {
    const RankSummary* worst = nullptr;
    const auto delay_ms = [](const RankSummary& rank) { return *rank.last_share * *rank.mean_lateness_ms; };
    for (const RankSummary& rank : analysis.ranks) {
        if (!rank.cause.empty() && (worst == nullptr || delay_ms(rank) > delay_ms(*worst))) worst = &rank;
    }
    return worst;
}

std::string bucket_name(const RunAnalysis& analysis, int32_t bucket) {
    const auto found = std::ranges::find(analysis.buckets, bucket, &BucketSummary::bucket);
    const std::string layers = found == analysis.buckets.end() ? "" : found->info.layers;
    return layers.empty() ? fmt::format("bucket {}", bucket) : fmt::format("bucket {} ({})", bucket, layers);
}

std::string arrival_text(const RunAnalysis& analysis, const WorstBuckets& worst) {
    std::string text = "arrival wait";
    if (worst.waited_for) text += " on " + bucket_name(analysis, *worst.waited_for);
    const RankSummary* straggler = straggler_of(analysis);
    if (straggler == nullptr) return text + ": no single rank is to blame";
    return text + fmt::format(": rank {} comes last in {:.0f} % of the steps, by {:.2f} ms ({})", straggler->rank,
                              100.0 * *straggler->last_share, *straggler->mean_lateness_ms, straggler->cause);
}

std::string loss_text(const RunAnalysis& analysis, Part part, int rank, const WorstBuckets& worst) {
    switch (part) {
        case Part::arrival_wait:
            return arrival_text(analysis, worst);
        case Part::exposed_transfer:
            return worst.exposed ? "exposed transfer, most of it of " + bucket_name(analysis, *worst.exposed) : "exposed transfer";
        case Part::data_wait:
            return fmt::format("data wait, most on rank {}: more loader threads or smaller images", rank);
        case Part::optimizer:
            return fmt::format("optimizer, most on rank {}", rank);
        default:
            return fmt::format("other, most on rank {}: time that no span explains", rank);
    }
}

std::optional<Loss> loss_of(const RunAnalysis& analysis, Part part, const WorstBuckets& worst) {
    const RankSummary* most = nullptr;
    for (const RankSummary& rank : analysis.ranks) {
        if (rank.mean_ms && (most == nullptr || (*rank.mean_ms)[part] > (*most->mean_ms)[part])) most = &rank;
    }
    if (most == nullptr || (*most->mean_ms)[part] <= 0.0) return std::nullopt;
    const double loss_ms = (*most->mean_ms)[part];
    const double step_ms = *most->step_mean_ms;
    const double rest_ms = std::max(step_ms - loss_ms, 1e-3 * step_ms);  // a step of nothing but loss stays a number
    return Loss{part, loss_ms, 100.0 * loss_ms / rest_ms, loss_text(analysis, part, most->rank, worst)};
}

// Puts the victims' wait before the part that causes it when the two are about equal.
void name_wait_before_cause(std::vector<Loss>& losses, bool has_straggler) {
    const auto wait = std::ranges::find(losses, Part::arrival_wait, &Loss::part);
    if (!has_straggler || wait == losses.end() || wait == losses.begin()) return;
    constexpr double kAboutEqual = 0.75;
    if (wait->loss_ms >= kAboutEqual * losses.front().loss_ms) std::rotate(losses.begin(), wait, wait + 1);
}

}  // namespace

std::vector<Loss> rank_losses(const RunAnalysis& analysis, const WorstBuckets& worst) {
    std::vector<Loss> losses;
    for (const Part part : {Part::data_wait, Part::exposed_transfer, Part::arrival_wait, Part::optimizer, Part::other}) {
        if (auto loss = loss_of(analysis, part, worst)) losses.push_back(std::move(*loss));
    }
    std::ranges::stable_sort(losses, std::greater(), &Loss::loss_ms);
    name_wait_before_cause(losses, straggler_of(analysis) != nullptr);
    return losses;
}

std::string headline_sentence(const RunAnalysis& analysis, int64_t skip_first_steps) {
    if (!analysis.mean_ms) {
        return fmt::format("Too short to tell: {} steps recorded, and the first {} are not steady yet.", analysis.common_steps,
                           skip_first_steps);
    }
    constexpr double kWorthNamingPercent = 1.0;
    if (analysis.losses.empty() || analysis.losses.front().ceiling_gain_percent < kWorthNamingPercent) {
        const double compute_ms = (*analysis.mean_ms)[Part::forward] + (*analysis.mean_ms)[Part::backward];
        return fmt::format("No loss above {:.0f} %: {:.1f} % of the step is forward and backward.", kWorthNamingPercent,
                           100.0 * compute_ms / std::max(*analysis.step_mean_ms, 1e-9));
    }
    const Loss& loss = analysis.losses.front();
    return fmt::format("Largest loss: {}; without it at most {:.1f} % more images/s.", loss.text, loss.ceiling_gain_percent);
}

}  // namespace lockstep
