#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/loader_bench.h"
#include "bench/machine_json.h"

namespace lockstep::bench {

namespace {

using Json = nlohmann::ordered_json;

bool has_stages(const LoaderBenchRow& row) { return row.what == "pipeline" || row.what == "loader"; }

Json json_of(const LoaderBenchRow& row) {
    const Spread& rate = row.images_per_s;
    Json json{{"what", row.what},
              {"threads", row.threads},
              {"images_per_s", rate.median},
              {"per_thread", rate.median / row.threads},
              {"spread", {{"p10", rate.p10}, {"p90", rate.p90}, {"min", rate.smallest}, {"max", rate.largest}}},
              {"cpu_us_per_image", row.cpu_us}};
    if (row.of_libjpeg > 0.0) json["of_libjpeg_turbo"] = row.of_libjpeg;
    if (row.what == "loader, paced") json["wait_share"] = row.wait_share;
    if (row.start_ms > 0.0) json["start_ms"] = row.start_ms;
    if (has_stages(row)) {
        for (size_t stage = 0; stage < kStageCount; ++stage)
            json["stage_us"][std::string(kStageNames[stage])] = row.stage_us[stage];
    }
    return json;
}

std::string head(const LoaderBenchResult& result) {
    std::string text = fmt::format("{} images of {:.1f} KB", result.images, 1e-3 * result.mean_bytes);
    if (result.mean_pixels > 0.0) text += fmt::format(" and {:.0f} thousand pixels", 1e-3 * result.mean_pixels);
    if (result.left_out > 0) text += fmt::format(" ({} left out)", result.left_out);
    return text;
}

constexpr std::array<const char*, kStageCount> kColours = {"#b3b3b3", "#0000a7", "#008176", "#e08214", "#7b3294"};
constexpr double kLeft = 190, kTop = 60, kWidth = 560, kBarHeight = 18, kRow = 24;

// One bar, of parts one after another.
std::string draw_bar(double y, const std::string& name, double full, const std::vector<std::pair<double, const char*>>& parts,
                     const std::string& value) {
    std::string text = fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{}</text>\n", kLeft - 8, y + 13, name);
    double x = kLeft;
    for (const auto& [length, colour] : parts) {
        const double width = full > 0.0 ? kWidth * length / full : 0.0;
        text +=
            fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{}' fill='{}'/>\n", x, y, width, kBarHeight, colour);
        x += width;
    }
    return text + fmt::format("<text x='{:.1f}' y='{:.1f}'>{}</text>\n", x + 6, y + 13, value);
}

// Reading alone is so much faster that its bar would make the others dots.
bool is_drawn(const LoaderBenchRow& row) { return row.what != "read" && row.what != "loader, paced"; }

std::string draw_rates(const LoaderBenchResult& result, double& y) {
    double full = 0.0;
    for (const LoaderBenchRow& row : result.rows) {
        if (is_drawn(row)) full = std::max(full, row.images_per_s.median / row.threads);
    }
    std::string text = fmt::format("<text x='{}' y='{:.1f}' font-size='13'>images/s per thread</text>\n", kLeft, y);
    y += 10;
    for (const LoaderBenchRow& row : result.rows) {
        if (!is_drawn(row)) continue;
        const double rate = row.images_per_s.median / row.threads;
        text += draw_bar(y, fmt::format("{}, {} thread{}", row.what, row.threads, row.threads == 1 ? "" : "s"), full,
                         {{rate, row.what == "libjpeg-turbo" ? "#b3b3b3" : "#0000a7"}}, fmt::format("{:.0f}", rate));
        y += kRow;
    }
    return text;
}

std::string draw_stages(const LoaderBenchResult& result, double& y) {
    std::string text, legend;
    double full = 0.0;
    const auto sum_of = [](const LoaderBenchRow& row) {
        double sum = 0.0;
        for (const double stage : row.stage_us) sum += stage;
        return sum;
    };
    for (const LoaderBenchRow& row : result.rows) full = std::max(full, sum_of(row));
    y += 26;
    text += fmt::format("<text x='{}' y='{:.1f}' font-size='13'>microseconds of an image in the pipeline</text>\n", kLeft, y);
    y += 10;
    for (const LoaderBenchRow& row : result.rows) {
        if (row.what != "pipeline") continue;
        std::vector<std::pair<double, const char*>> parts;
        for (size_t stage = 0; stage < kStageCount; ++stage) parts.emplace_back(row.stage_us[stage], kColours[stage]);
        text += draw_bar(y, fmt::format("{} thread{}", row.threads, row.threads == 1 ? "" : "s"), full, parts,
                         fmt::format("{:.0f}", sum_of(row)));
        y += kRow;
    }
    for (size_t stage = 0; stage < kStageCount; ++stage) {
        const double x = kLeft + 90.0 * static_cast<double>(stage);
        legend += fmt::format(
            "<rect x='{0:.1f}' y='{1:.1f}' width='12' height='12' fill='{2}'/><text x='{3:.1f}' y='{4:.1f}'>{5}</text>\n", x, y + 4,
            kColours[stage], x + 16, y + 14, kStageNames[stage]);
    }
    y += kRow;
    return text + legend;
}

}  // namespace

std::string to_json(const LoaderBenchResult& result) {
    Json rows = Json::array();
    for (const LoaderBenchRow& row : result.rows) rows.push_back(json_of(row));
    return Json{{"benchmark", "loader"},
                {"source", result.source},
                {"images", result.images},
                {"left_out", result.left_out},
                {"mean_bytes", result.mean_bytes},
                {"mean_pixels", result.mean_pixels},
                {"rounds", result.options.rounds},
                {"batch", result.options.batch},
                {"batches_ahead", result.options.batches_ahead},
                {"consumer_images_per_s", result.options.consumer_images_per_s},
                {"output", {result.options.pipeline.channels, result.options.pipeline.height, result.options.pipeline.width}},
                {"rows", rows},
                {"steal_share", result.steal_share},
                {"machine", json_of(machine_facts())}}
        .dump();
}

std::string to_text(const LoaderBenchResult& result) {
    const MachineFacts facts = machine_facts();
    std::string text = fmt::format("{}\n{}; {} rounds in turn; {}, {} of {} cores, load {:.1f}, {:.1f} % stolen\n", result.source,
                                   head(result), result.options.rounds, facts.cpu_model, facts.cores_allowed, facts.cores_online,
                                   facts.load_average.empty() ? 0.0 : facts.load_average[0], 100.0 * result.steal_share);
    text += fmt::format("{:<16} {:>7} {:>10} {:>10} {:>21} {:>12} {:>16}\n", "", "threads", "images/s", "per thread", "p10 .. p90",
                        "CPU us/image", "of libjpeg-turbo");
    for (const LoaderBenchRow& row : result.rows) {
        const Spread& rate = row.images_per_s;
        text += fmt::format("{:<16} {:>7} {:>10.1f} {:>10.1f} {:>21} {:>12.1f} {:>16}\n", row.what, row.threads, rate.median,
                            rate.median / row.threads, fmt::format("{:.1f} .. {:.1f}", rate.p10, rate.p90), row.cpu_us,
                            row.of_libjpeg > 0.0 ? fmt::format("{:.2f}", row.of_libjpeg) : "");
        if (row.what == "loader, paced") {
            text += fmt::format("{:<16} a consumer of {:g} images/s waits {:.2f} % of the time\n", "",
                                result.options.consumer_images_per_s, 100.0 * row.wait_share);
        }
        if (!has_stages(row)) continue;
        text += fmt::format("{:<16} us:", "");
        for (size_t stage = 0; stage < kStageCount; ++stage)
            text += fmt::format(" {} {:.1f}", kStageNames[stage], row.stage_us[stage]);
        text += row.start_ms > 0.0 ? fmt::format("; first batch after {:.0f} ms\n", row.start_ms) : "\n";
    }
    return text;
}

std::string to_svg(const LoaderBenchResult& result) {
    double y = kTop;
    const std::string bars = draw_rates(result, y) + draw_stages(result, y);
    return fmt::format(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1:.0f}' viewBox='0 0 {0} {1:.0f}' font-family='sans-serif' "
        "font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n<text x='20' y='26' font-size='15'>The loader: {2}, "
        "medians of "
        "{3} rounds</text>\n{4}</svg>\n",
        kLeft + kWidth + 90, y + 20, head(result), result.options.rounds, bars);
}

}  // namespace lockstep::bench
