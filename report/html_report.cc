#include <algorithm>
#include <array>
#include <iterator>

#include "report/outputs.h"
#include "report/page_style.h"
#include "report/plots.h"
#include "report/svg.h"
#include "report/text.h"

namespace lockstep {

namespace {

std::string section(std::string_view title, std::string_view explanation, std::string_view content) {
    return fmt::format("<section><h2>{}</h2>\n<p>{}</p>\n{}\n</section>\n", escape_markup(title), escape_markup(explanation),
                       content);
}

struct KeyEntry {
    std::string style;
    std::string_view name;
};

std::string colour_key(const std::vector<KeyEntry>& entries) {
    std::string text = "<div class=\"key\">";
    for (const KeyEntry& entry : entries) {
        text += fmt::format("<span><i class=\"{}\"></i>{}</span>", entry.style, escape_markup(entry.name));
    }
    return text + "</div>";
}

std::string tile(std::string_view value, std::string_view meaning) {
    return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape_markup(value), escape_markup(meaning));
}

// Columns of text keep left; all others are numbers.
std::string table(const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows,
                  size_t first_text_column) {
    const auto cells = [&](std::string_view tag, const std::vector<std::string>& texts) {
        std::string line = "<tr>";
        for (size_t column = 0; column < texts.size(); ++column) {
            const std::string_view style = column >= first_text_column ? " class=\"text\"" : "";
            line += fmt::format("<{0}{1}>{2}</{0}>", tag, style, escape_markup(texts[column]));
        }
        return line + "</tr>\n";
    };
    std::string text = "<table><thead>" + cells("th", heads) + "</thead><tbody>\n";
    for (const auto& row : rows) text += cells("td", row);
    return text + "</tbody></table>";
}

std::string head(const RunAnalysis& analysis) {
    const RunFacts& facts = analysis.facts;
    const std::string window = analysis.common_steps == 0 ? "no step that all ranks have"
                                                          : fmt::format("steps {} to {}, {} of them steady", analysis.first_step,
                                                                        analysis.last_step, analysis.steady_steps);
    std::string text = fmt::format("<h1>{}</h1>\n<div class=\"sub\">{} on {} rank{}, global batch {}, {}; {}</div>\n",
                                   escape_markup(facts.name), escape_markup(facts.model), facts.world_size,
                                   facts.world_size == 1 ? "" : "s", facts.batch_global, escape_markup(facts.data), window);
    text += fmt::format("<div class=\"headline\">{}</div>\n", escape_markup(analysis.headline));
    if (!analysis.missing_ranks.empty()) {
        text += fmt::format("<div class=\"headline alert\">No records of rank {}: the numbers speak of the others only.</div>\n",
                            fmt::join(analysis.missing_ranks, ", "));
    }
    for (const std::string& warning : analysis.warnings) {
        text += fmt::format("<div class=\"headline alert\">{}</div>\n", escape_markup(warning));
    }
    return text;
}

std::string tiles(const RunAnalysis& analysis) {
    std::optional<double> per_rank = analysis.images_per_s;
    if (per_rank) *per_rank /= static_cast<double>(analysis.ranks.size());
    const auto& step = analysis.step_ms;
    const std::string tails = step ? fmt::format("step p50 (p95 {:.2f}, p99 {:.2f})", step->p95, step->p99) : "step p50";
    return "<div class=\"tiles\">" + tile(fixed(analysis.images_per_s, 1), "images/s, all ranks") +
           tile(fixed(per_rank, 1), "images/s per rank") + tile(step ? fixed(step->p50, 2, " ms") : "n/a", tails) +
           tile(percent(analysis.sync_efficiency), "sync efficiency, measured") +
           tile(analysis.model ? percent(analysis.model->efficiency) : "n/a", "sync efficiency, by formula") +
           tile(percent(analysis.overlap_share), "of the transfer hidden behind compute") + "</div>\n";
}

std::string budget_section(const RunAnalysis& analysis) {
    std::vector<KeyEntry> key;
    for (const Part part : kParts) key.push_back({fmt::format("p-{}", part_key(part)), part_title(part)});
    return section("Where a step goes",
                   "Disjoint parts that add up to the wall time. Exposed transfer and arrival wait (for the last rank) are the "
                   "communication outside compute; what is hidden behind compute is free.",
                   colour_key(key) + plot_budget(analysis));
}

std::string losses_section(const RunAnalysis& analysis) {
    std::vector<std::vector<std::string>> rows;
    for (const Loss& loss : analysis.losses) {
        rows.push_back({fmt::format("{:.3f}", loss.loss_ms), fmt::format("{:.2f} %", loss.ceiling_gain_percent), loss.text});
    }
    if (rows.empty()) return "";
    return section("What could be won", "Ceilings: the most images/s that removing all of it on its worst rank could bring.",
                   table({"ms per step", "at most", "loss"}, rows, 2));
}

std::string bucket_section(const RunAnalysis& analysis) {
    std::vector<std::vector<std::string>> rows;
    for (const BucketSummary& bucket : analysis.buckets) {
        rows.push_back({fmt::format("{}", bucket.bucket), mebibytes(bucket.info.bytes), fixed(bucket.ready_ms, 3),
                        fixed(bucket.start_ms, 3), fixed(bucket.arrived_ms, 3), fixed(bucket.end_ms, 3), fixed(bucket.wait_ms, 3),
                        fixed(bucket.transfer_ms, 3), percent(bucket.hidden_share, 0), fixed(bucket.algbw_gb_per_s, 2),
                        fixed(bucket.busbw_gb_per_s, 2), bucket.info.layers});
    }
    std::string content = colour_key({{"p-backward", "backward"},
                                      {"queued", "ready, not started"},
                                      {"p-arrival_wait", "waiting for the last rank"},
                                      {"transfer", "transfer"}}) +
                          plot_buckets(analysis);
    if (!rows.empty()) {
        content += table({"bucket", "MiB", "ready ms", "start", "arrived", "end", "wait", "transfer", "hidden", "algbw GB/s",
                          "busbw GB/s", "layers"},
                         rows, 11);
    }
    return section(
        "Buckets",
        "Medians over the steady steps, since the step began. Transfer inside the shaded backward costs nothing; what sticks "
        "out on the right is exposed.",
        content);
}

std::string rank_section(const RunAnalysis& analysis) {
    std::vector<std::string> heads = {"rank", "images/s", "step ms", "p95"};
    for (const Part part : kParts) heads.emplace_back(part_title(part));
    for (const char* name : {"last", "late ms", "host", "cause"}) heads.emplace_back(name);
    std::vector<std::vector<std::string>> rows;
    for (const RankSummary& rank : analysis.ranks) {
        std::vector<std::string> row = {fmt::format("{}", rank.rank), fixed(rank.images_per_s, 1), fixed(rank.step_mean_ms, 2),
                                        rank.step_ms ? fixed(rank.step_ms->p95, 2) : "n/a"};
        for (const Part part : kParts) row.push_back(rank.mean_ms ? fixed((*rank.mean_ms)[part], 2) : "n/a");
        row.push_back(percent(rank.last_share, 0));
        row.push_back(fixed(rank.mean_lateness_ms, 2));
        row.push_back(rank.host);
        row.push_back(rank.cause.empty() ? "-" : rank.cause);
        rows.push_back(std::move(row));
    }
    return section(
        "Ranks",
        "Means over the steady steps in ms. \"Last\": share of steps in which the rank delayed the others most, \"late\": by "
        "how much. A rank that waits is a victim; the cause is named for ranks that are late often and by at least 1 % of a step.",
        table(heads, rows, 4 + kPartCount + 2));
}

std::string curve_sections(std::span<const MetricsLine> metrics) {
    const std::array<CurveSeries, 2> loss = {{{"train.loss", "line-a"}, {"val.loss", "line-b"}}};
    const std::array<CurveSeries, 2> accuracy = {{{"train.top1", "line-a"}, {"val.top1", "line-b"}}};
    const std::array<CurveSeries, 1> rate = {{{"lr", "line-a"}}};
    std::string plots;
    if (has_metric(metrics, "train.loss") || has_metric(metrics, "val.loss")) {
        plots += "<div>" + plot_curves(metrics, loss, "loss") + "</div>";
    }
    if (has_metric(metrics, "train.top1") || has_metric(metrics, "val.top1")) {
        plots += "<div>" + plot_curves(metrics, accuracy, "top-1") + "</div>";
    }
    if (has_metric(metrics, "lr")) plots += "<div>" + plot_curves(metrics, rate, "learning rate") + "</div>";
    if (plots.empty()) return "";
    return section("Learning", "From metrics.jsonl.",
                   colour_key({{"line-a", "training"}, {"line-b", "validation"}}) + "<div class=\"pair\">" + plots + "</div>");
}

std::string timeline_section(const RunAnalysis& analysis, std::span<const TimelineStep> typical) {
    const std::string title = analysis.typical_step ? fmt::format("Timeline of step {}", *analysis.typical_step) : "Timeline";
    return section(title, "A step of median length, all ranks on one clock. trace.json holds more steps for Perfetto or Chrome.",
                   colour_key({{"p-forward", "forward"},
                               {"p-backward", "backward"},
                               {"p-optimizer", "optimizer"},
                               {"blocked", "blocked in finish"},
                               {"p-arrival_wait", "waiting for the last rank"},
                               {"transfer", "transfer"},
                               {"p-data_wait", "data wait"}}) +
                       plot_timeline(typical));
}

std::string model_text(const RunAnalysis& analysis) {
    if (!analysis.model) return "n/a";
    const SyncModel& model = *analysis.model;
    return fmt::format(
        "(Tf + Tb) / (Tf + max(Tb, M / B)) = {}; Tf {:.3f} ms, Tb {:.3f} ms, M {} MiB, B {} (gradient bytes / transfer time "
        "of a step in this run)",
        percent(model.efficiency), model.forward_ms, model.backward_ms, mebibytes(model.gradient_bytes),
        fixed(model.bandwidth_gb_per_s, 2, " GB/s"));
}

std::string provenance_section(const RunAnalysis& analysis) {
    const RunFacts& facts = analysis.facts;
    std::string list = "<dl>";
    const auto row = [&](std::string_view name, std::string_view value) {
        list += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_markup(name), escape_markup(value));
    };
    row("command", facts.command);
    row("program", facts.program_version);
    row("configuration", facts.config_hash);
    row("started", facts.started);
    row("host of the first rank", facts.host);
    row("backend", facts.backend);
    row("communicator", facts.communicator);
    row("data", facts.data);
    row("threads per rank", fmt::format("{}", facts.threads));
    row("batch", fmt::format("{} global, {} per virtual worker", facts.batch_global, facts.per_replica));
    row("parameters", fmt::format("{}", facts.parameter_count));
    row("seed", fmt::format("{}", facts.seed));
    for (const auto& [name, value] : facts.extra) row(name, value);
    row("efficiency by formula", model_text(analysis));
    for (const PauseSummary& pause : analysis.pauses) {
        row(pause_name(pause.kind), fmt::format("{} times, {:.2f} s in all, not part of the steps", pause.count, pause.total_s));
    }
    if (analysis.data) row("data supply", analysis.data->sentence);
    if (analysis.clock_error_ms) row("clocks of the hosts", fmt::format("agree within {:.3f} ms", *analysis.clock_error_ms));
    return section("Provenance", "What was run, and how the numbers came about.", list + "</dl>");
}

}  // namespace

std::string html_report(const RunAnalysis& analysis, std::span<const TimelineStep> typical, std::span<const MetricsLine> metrics) {
    std::string page = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
        "<title>Lockstep report: {}</title>\n<style>{}</style></head>\n<body><main>\n",
        escape_markup(analysis.facts.name), kPageStyle);
    page += head(analysis) + tiles(analysis) + budget_section(analysis) + losses_section(analysis) + bucket_section(analysis);
    page += timeline_section(analysis, typical);
    page += section("Step time", "Wall time of the slowest rank; the band spans the extremes of neighbouring steps.",
                    plot_step_times(analysis));
    page += curve_sections(metrics) + rank_section(analysis) + provenance_section(analysis);
    page += fmt::format("</main><script>{}</script></body></html>\n", kPageScript);
    return page;
}

}  // namespace lockstep
