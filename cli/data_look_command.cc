// lockstep data verify and stats: a look at every picture.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/data_source_options.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/json_text.h"
#include "data_loader/statistics.h"
#include "data_loader/verify.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
    SourceChoice source;
    int threads = default_threads();
    bool allow_duplicates = false;
    bool json = false;
};

Json size_json(ImageSize size) { return {{"width", size.width}, {"height", size.height}}; }

Json verify_json(const Source& source, const VerifyResult& result) {
    Json findings = Json::array();
    for (const Finding& finding : result.findings) {
        findings.push_back({{"kind", finding.kind}, {"sample", finding.sample}, {"text", finding.text}});
    }
    return {{"source", source.description()},
            {"fingerprint", hash_hex(source.fingerprint())},
            {"images", result.images},
            {"compared_with_index", result.declared},
            {"decoder_warnings", result.warnings},
            {"smallest", size_json(result.smallest)},
            {"largest", size_json(result.largest)},
            {"findings", findings}};
}

void print_verdict(const Source& source, const VerifyResult& result) {
    for (const Finding& finding : result.findings) fmt::print("{}: {}\n", finding.kind, finding.text);
    fmt::print("{}\nverified {} images ({} against an index): {} findings, {} decoder warnings, sizes {}x{} to {}x{}\n",
               source.description(), result.images, result.declared, result.findings.size(), result.warnings, result.smallest.width,
               result.smallest.height, result.largest.width, result.largest.height);
}

int run_verify(const Arguments& arguments) {
    const std::unique_ptr<Source> source = open_chosen(arguments.source);
    const VerifyResult result =
        verify_images(*source, {.threads = arguments.threads, .find_duplicates = !arguments.allow_duplicates});
    if (arguments.json) {
        fmt::print("{}\n", json_text(verify_json(*source, result), 2));
    } else {
        print_verdict(*source, result);
    }
    return static_cast<int>(result.findings.empty() ? ExitCode::kDone : ExitCode::kData);
}

struct Balance {
    int64_t empty = 0, fewest = 0, most = 0;
};

Balance balance_of(const Source& source, const SetStatistics& result) {
    Balance balance{.empty = source.class_total() - std::ssize(result.images_of_class)};
    for (const auto& [label, images] : result.images_of_class) {
        balance.fewest = balance.most == 0 ? images : std::min(balance.fewest, images);
        balance.most = std::max(balance.most, images);
    }
    return balance;
}

Json stats_json(const Source& source, const SetStatistics& result) {
    const Balance balance = balance_of(source, result);
    Json sides = Json::object(), classes = Json::array();
    for (const auto& [side, images] : result.shorter_sides) sides[fmt::format("{}", side)] = images;
    for (const auto& [label, images] : result.images_of_class) {
        Json row = {{"label", label}, {"images", images}};
        if (label < std::ssize(source.class_names())) row["name"] = source.class_names()[static_cast<size_t>(label)];
        classes.push_back(row);
    }
    return {{"source", source.description()},
            {"images", result.images},
            {"bad", result.bad},
            {"mean", result.mean},
            {"stddev", result.stddev},
            {"smallest", size_json(result.smallest)},
            {"largest", size_json(result.largest)},
            {"shorter_side_from", sides},
            {"classes",
             {{"total", source.class_total()}, {"empty", balance.empty}, {"fewest", balance.fewest}, {"most", balance.most}}},
            {"images_of_class", classes}};
}

void print_stats(const Source& source, const SetStatistics& result) {
    const Balance balance = balance_of(source, result);
    fmt::print("{}\n{} images, {} of them unreadable\n", source.description(), result.images, result.bad);
    fmt::print("data.mean=[{:.4f}] data.stddev=[{:.4f}]\n", fmt::join(result.mean, ", "), fmt::join(result.stddev, ", "));
    fmt::print("{} classes: {} empty, {} to {} images in the others\n", source.class_total(), balance.empty, balance.fewest,
               balance.most);
    fmt::print("sizes {}x{} to {}x{}; shorter side:\n", result.smallest.width, result.smallest.height, result.largest.width,
               result.largest.height);
    for (const auto& [side, images] : result.shorter_sides) fmt::print("  {:>6} to {:>6} {:>9}\n", side, 2 * side - 1, images);
}

int run_stats(const Arguments& arguments) {
    const std::unique_ptr<Source> source = open_chosen(arguments.source);
    const SetStatistics result = statistics_of(*source, arguments.threads);
    if (arguments.json) {
        fmt::print("{}\n", json_text(stats_json(*source, result), 2));
    } else {
        print_stats(*source, result);
    }
    return static_cast<int>(result.bad == result.images ? ExitCode::kData : ExitCode::kDone);
}

CLI::App* add_look(CLI::App& data, const char* name, const char* help, int (*run)(const Arguments&), Action& chosen,
                   const std::shared_ptr<Arguments>& arguments) {
    CLI::App* command = data.add_subcommand(name, help);
    add_source_options(*command, arguments->source, Paths::several);
    command->add_option("--threads", arguments->threads, "Decoding threads")->check(CLI::Range(1, 1024))->capture_default_str();
    command->add_flag("--json", arguments->json, "Print JSON");
    command->parse_complete_callback([arguments, run, &chosen] { chosen = [arguments, run] { return run(*arguments); }; });
    return command;
}

}  // namespace

void add_data_look(CLI::App& data, Action& chosen) {
    const auto verify = std::make_shared<Arguments>();
    CLI::App* command =
        add_look(data, "verify", "Compare and decode every picture; one line for each finding, exit code 3 when there is one",
                 run_verify, chosen, verify);
    command->add_flag("--allow-duplicates", verify->allow_duplicates, "Pictures with the same bytes are no finding");
    add_look(data, "stats", "Mean and standard deviation for the configuration, class balance, sizes", run_stats, chosen,
             std::make_shared<Arguments>());
}

}  // namespace lockstep::cli
