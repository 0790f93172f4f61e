#include <nlohmann/json.hpp>

#include "core/json_text.h"
#include "report/facts_json.h"
#include "report/outputs.h"
#include "report/text.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

Json number(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

Json budget(const std::optional<PerPart<double>>& ms, std::optional<double> step_ms) {
    Json json = Json::object();
    for (const Part part : kParts) {
        json[std::string(part_key(part)) + "_ms"] = ms ? Json((*ms)[part]) : Json(nullptr);
    }
    json["step_ms"] = number(step_ms);
    return json;
}

Json percentiles_json(const std::optional<Percentiles>& ms) {
    return {{"p50", ms ? Json(ms->p50) : Json(nullptr)},
            {"p95", ms ? Json(ms->p95) : Json(nullptr)},
            {"p99", ms ? Json(ms->p99) : Json(nullptr)}};
}

Json window(const RunAnalysis& analysis) {
    return {{"first_step", analysis.first_step},
            {"last_step", analysis.last_step},
            {"steps", analysis.common_steps},
            {"steady_steps", analysis.steady_steps},
            {"skipped_steps", analysis.skipped_steps},
            {"ranks_present", analysis.ranks.size()},
            {"missing_ranks", analysis.missing_ranks},
            {"clock_error_ms", number(analysis.clock_error_ms)},
            {"warnings", analysis.warnings}};
}

// Flat: what gates compare.
Json headline(const RunAnalysis& analysis) {
    const auto step_ms = [&](double Percentiles::*which) {
        return analysis.step_ms ? Json((*analysis.step_ms).*which) : Json(nullptr);
    };
    std::optional<double> per_rank = analysis.images_per_s;
    if (per_rank) *per_rank /= static_cast<double>(analysis.ranks.size());
    return {{"sentence", analysis.headline},
            {"images_per_s", number(analysis.images_per_s)},
            {"images_per_s_per_rank", number(per_rank)},
            {"step_p50_ms", step_ms(&Percentiles::p50)},
            {"step_p95_ms", step_ms(&Percentiles::p95)},
            {"step_p99_ms", step_ms(&Percentiles::p99)},
            {"sync_efficiency", number(analysis.sync_efficiency)},
            {"sync_efficiency_formula", analysis.model ? Json(analysis.model->efficiency) : Json(nullptr)},
            {"exposed_transfer_share", number(analysis.exposed_transfer_share)},
            {"arrival_wait_share", number(analysis.arrival_wait_share)},
            {"overlap_share", number(analysis.overlap_share)}};
}

Json model(const std::optional<SyncModel>& model) {
    if (!model) return nullptr;
    return {{"efficiency", model->efficiency},
            {"formula", "(Tf + Tb) / (Tf + max(Tb, M / B))"},
            {"forward_ms", model->forward_ms},
            {"backward_ms", model->backward_ms},
            {"gradient_bytes", model->gradient_bytes},
            {"bandwidth_gb_per_s", number(model->bandwidth_gb_per_s)},
            {"bandwidth_source", "gradient bytes / transfer time of a step in this run, after the last rank arrived"}};
}

Json budgets(const RunAnalysis& analysis) {
    Json ranks = Json::array();
    for (const RankSummary& rank : analysis.ranks) {
        Json row = {{"rank", rank.rank}};
        row.update(budget(rank.mean_ms, rank.step_mean_ms));
        ranks.push_back(std::move(row));
    }
    Json sd = budget(analysis.sd_ms, std::nullopt);
    sd.erase("step_ms");
    return {{"mean", budget(analysis.mean_ms, analysis.step_mean_ms)}, {"sd_over_ranks", sd}, {"ranks", ranks}};
}

Json buckets(const RunAnalysis& analysis) {
    Json rows = Json::array();
    for (const BucketSummary& bucket : analysis.buckets) {
        rows.push_back({{"bucket", bucket.bucket},
                        {"layers", bucket.info.layers},
                        {"bytes", bucket.info.bytes},
                        {"ready_ms", bucket.ready_ms},
                        {"start_ms", bucket.start_ms},
                        {"arrived_ms", bucket.arrived_ms},
                        {"end_ms", bucket.end_ms},
                        {"wait_ms", bucket.wait_ms},
                        {"transfer_ms", bucket.transfer_ms},
                        {"hidden_share", number(bucket.hidden_share)},
                        {"algbw_gb_per_s", number(bucket.algbw_gb_per_s)},
                        {"busbw_gb_per_s", number(bucket.busbw_gb_per_s)}});
    }
    return rows;
}

Json ranks(const RunAnalysis& analysis) {
    Json rows = Json::array();
    for (const RankSummary& rank : analysis.ranks) {
        rows.push_back({{"rank", rank.rank},
                        {"host", rank.host},
                        {"steps", rank.steps},
                        {"images", rank.images},
                        {"images_per_s", number(rank.images_per_s)},
                        {"step_ms", percentiles_json(rank.step_ms)},
                        {"last_share", number(rank.last_share)},
                        {"mean_lateness_ms", number(rank.mean_lateness_ms)},
                        {"cause", rank.cause.empty() ? Json(nullptr) : Json(rank.cause)}});
    }
    return rows;
}

Json losses(const RunAnalysis& analysis) {
    Json rows = Json::array();
    for (const Loss& loss : analysis.losses) {
        rows.push_back({{"part", part_key(loss.part)},
                        {"loss_ms", loss.loss_ms},
                        {"ceiling_gain_percent", loss.ceiling_gain_percent},
                        {"text", loss.text}});
    }
    return rows;
}

Json pauses(const RunAnalysis& analysis) {
    Json rows = Json::array();
    for (const PauseSummary& pause : analysis.pauses) {
        rows.push_back({{"kind", pause_name(pause.kind)}, {"count", pause.count}, {"total_s", pause.total_s}});
    }
    return rows;
}

Json data(const std::optional<DataSupply>& supply) {
    if (!supply) return nullptr;
    return {{"wait_share", supply->wait_share},
            {"images_per_s_per_thread", supply->images_per_s_per_thread},
            {"workers", supply->workers},
            {"ready_batches", supply->ready_batches},
            {"read_mb_per_s", supply->read_mb_per_s},
            {"sentence", supply->sentence}};
}

}  // namespace

std::string json_report(const RunAnalysis& analysis) {
    const Json json = {{"schema", "lockstep.report"},
                       {"schema_version", 1},
                       {"run", Json::parse(facts_to_json(analysis.facts))},
                       {"window", window(analysis)},
                       {"headline", headline(analysis)},
                       {"budget", budgets(analysis)},
                       {"sync_model", model(analysis.model)},
                       {"buckets", buckets(analysis)},
                       {"ranks", ranks(analysis)},
                       {"losses", losses(analysis)},
                       {"pauses", pauses(analysis)},
                       {"data", data(analysis.data)}};
    return json_text(json, 2) + "\n";
}

}  // namespace lockstep
