// `lockstep checkpoint`: what a run has saved, whether it is sound, what is in it, in what two of them differ.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_text.h"
#include "trainer/checkpoint_look.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
    std::string place, other;
    std::string best = "val.top1";
    size_t top = 20;
    bool json = false;
    bool exit_code = false;
};

void print(const Json& json) { fmt::print("{}\n", json_text(json, 2)); }

double megabytes(int64_t bytes) { return 1e-6 * static_cast<double>(bytes); }

Json to_json(const CheckpointSummary& summary) {
    Json json = {{"path", summary.path.string()},   {"step", summary.step},
                 {"bytes", summary.bytes},          {"written", summary.written},
                 {"sound", summary.damage.empty()}, {"best", summary.is_best}};
    if (!summary.damage.empty()) {
        json["damage"] = summary.damage;
        return json;
    }
    json["epoch"] = summary.manifest.epoch;
    json["world_size"] = summary.manifest.world_size;
    json["metrics"] = summary.manifest.metrics;
    return json;
}

std::string metric_text(const CheckpointSummary& summary, const std::string& metric) {
    const auto found = summary.manifest.metrics.find(metric);
    return found == summary.manifest.metrics.end() ? "-" : fmt::format("{:.4f}", found->second);
}

void print_table(const std::vector<CheckpointSummary>& all, const std::string& metric) {
    fmt::print("{:>10} {:>9} {:>10}  {:<20}  {:>9}  {}\n", "step", "epoch", "MB", "written", metric, "path");
    for (const CheckpointSummary& each : all) {
        const bool sound = each.damage.empty();
        fmt::print("{:>10} {:>9} {:>10.2f}  {:<20}  {:>9}  {}{}\n", each.step,
                   sound ? fmt::format("{:.2f}", each.manifest.epoch) : "-", megabytes(each.bytes), each.written,
                   metric_text(each, metric), each.path.string(), each.is_best ? "  <- best" : "");
        if (!sound) fmt::print("{:>10} damaged: {}\n", "", each.damage);
    }
}

// 3 when something is damaged.
int code_of(const std::vector<CheckpointSummary>& all) {
    const bool sound = std::ranges::all_of(all, [](const auto& each) { return each.damage.empty(); });
    return static_cast<int>(sound ? ExitCode::kDone : ExitCode::kData);
}

int list(const Arguments& arguments) {
    const auto all = look_at_checkpoints(arguments.place, false, arguments.best);
    if (arguments.json) {
        Json json = Json::array();
        for (const CheckpointSummary& each : all) json.push_back(to_json(each));
        print(json);
    } else {
        print_table(all, arguments.best);
    }
    return code_of(all);
}

// A single checkpoint, or all of a run.
std::vector<CheckpointSummary> verified(const fs::path& place) {
    if (!fs::exists(place / "manifest.json")) return look_at_checkpoints(place, true, "");
    CheckpointSummary summary{.path = place};
    try {
        summary.manifest = verify_checkpoint(place);
        summary.step = summary.manifest.step;
    } catch (const DataError& error) {
        summary.damage = error.what();
    }
    return {summary};
}

int verify(const Arguments& arguments) {
    const auto all = verified(arguments.place);
    if (arguments.json) {
        Json json = Json::array();
        for (const CheckpointSummary& each : all) {
            json.push_back({{"path", each.path.string()}, {"sound", each.damage.empty()}});
            if (!each.damage.empty()) json.back()["damage"] = each.damage;
        }
        print(json);
    } else {
        for (const CheckpointSummary& each : all) {
            fmt::print(
                "{}: {}\n", each.path.string(),
                each.damage.empty() ? fmt::format("sound, {} files", each.manifest.files.size() + 1) : "damaged: " + each.damage);
        }
    }
    return code_of(all);
}

Json to_json(const TensorFacts& tensor) {
    return {{"file", tensor.file},   {"name", tensor.name}, {"type", to_string(tensor.type)},
            {"shape", tensor.shape}, {"norm", tensor.norm}, {"largest", tensor.largest}};
}

int show(const Arguments& arguments) {
    const fs::path path = checkpoint_at(arguments.place);
    const Manifest manifest = verify_checkpoint(path);
    const auto tensors = tensors_of(path);
    if (arguments.json) {
        Json rows = Json::array();
        for (const TensorFacts& tensor : tensors) rows.push_back(to_json(tensor));
        print({{"path", path.string()}, {"manifest", Json::parse(to_json(manifest))}, {"tensors", rows}});
        return 0;
    }
    fmt::print("{}: step {} of {}, epoch {:.2f}, {} classes, made on {} ranks\n", path.string(), manifest.step,
               manifest.total_steps, manifest.epoch, manifest.num_classes, manifest.world_size);
    for (const auto& [key, value] : manifest.metrics) fmt::print("  {} {:.6g}\n", key, value);
    for (const auto& [key, value] : manifest.result_keys) fmt::print("  {} {}\n", key, value);
    fmt::print("{:<22} {:<40} {:>5} {:<18} {:>12} {:>12}\n", "file", "tensor", "type", "shape", "norm", "largest");
    for (const TensorFacts& tensor : tensors) {
        fmt::print("{:<22} {:<40} {:>5} {:<18} {:>12.5g} {:>12.5g}\n", tensor.file, tensor.name, to_string(tensor.type),
                   to_string(tensor.shape), tensor.norm, tensor.largest);
    }
    return 0;
}

Json to_json(const TensorDifference& each) {
    Json json = {{"file", each.file}, {"name", each.name}};
    if (!each.problem.empty()) {
        json["problem"] = each.problem;
        return json;
    }
    json.update({{"count", each.count}, {"differing", each.differing}, {"largest", each.largest}, {"relative", each.relative}});
    return json;
}

void print_differences(const std::vector<FactDifference>& facts, const std::vector<TensorDifference>& tensors, size_t top) {
    for (const FactDifference& fact : facts) fmt::print("{}: {} -> {}\n", fact.key, fact.first, fact.second);
    if (tensors.empty()) return fmt::print("all tensors are equal, bit for bit\n");
    fmt::print("{} tensors differ; the largest first\n", tensors.size());
    fmt::print("{:<22} {:<40} {:>18} {:>12} {:>12}\n", "file", "tensor", "elements", "largest", "relative");
    for (size_t index = 0; index < std::min(top, tensors.size()); ++index) {
        const TensorDifference& each = tensors[index];
        if (!each.problem.empty()) {
            fmt::print("{:<22} {:<40} {}\n", each.file, each.name, each.problem);
        } else {
            fmt::print("{:<22} {:<40} {:>18} {:>12.5g} {:>12.5g}\n", each.file, each.name,
                       fmt::format("{} of {}", each.differing, each.count), each.largest, each.relative);
        }
    }
    if (tensors.size() > top) fmt::print("... and {} more (--top N shows more)\n", tensors.size() - top);
}

int diff(const Arguments& arguments) {
    const fs::path first = checkpoint_at(arguments.place);
    const fs::path second = checkpoint_at(arguments.other);
    const auto facts = compare_manifests(verify_checkpoint(first), verify_checkpoint(second));
    const auto tensors = compare_checkpoints(first, second);
    if (arguments.json) {
        Json json = {{"first", first.string()}, {"second", second.string()}, {"facts", Json::array()}, {"tensors", Json::array()}};
        for (const FactDifference& fact : facts) {
            json["facts"].push_back({{"key", fact.key}, {"first", fact.first}, {"second", fact.second}});
        }
        for (const TensorDifference& each : tensors) json["tensors"].push_back(to_json(each));
        print(json);
    } else {
        print_differences(facts, tensors, arguments.top);
    }
    return arguments.exit_code && !tensors.empty() ? 1 : 0;
}

CLI::App* add(CLI::App& parent, Action& chosen, const std::shared_ptr<Arguments>& arguments, const char* name, const char* what,
              int (*run)(const Arguments&)) {
    CLI::App* command = parent.add_subcommand(name, what);
    command->add_flag("--json", arguments->json, "JSON instead of text");
    command->parse_complete_callback([arguments, run, &chosen] {
        chosen = [arguments, run] {
            const int code = run(*arguments);
            std::fflush(stdout);
            return code;
        };
    });
    return command;
}

}  // namespace

void add_checkpoint(CLI::App& app, Action& chosen) {
    CLI::App* checkpoint = app.add_subcommand("checkpoint", "List, verify, show and compare checkpoints");
    checkpoint->require_subcommand(1);
    checkpoint->footer("Where a checkpoint is asked for, a run folder stands for its newest. Exit code 3: damaged or none.");
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command = add(*checkpoint, chosen, arguments, "list", "Steps, sizes, times, metrics; the best one", list);
    command->add_option("place", arguments->place, "A run folder, or its folder checkpoints")->required();
    command->add_option("--best", arguments->best, "Metric that marks the best one: val.top1, val.top5, val.loss")
        ->capture_default_str();
    command = add(*checkpoint, chosen, arguments, "verify", "Every file against its checksum", verify);
    command->add_option("place", arguments->place, "A run folder (all of its checkpoints) or one checkpoint")->required();
    command = add(*checkpoint, chosen, arguments, "show", "Manifest and tensors of one checkpoint", show);
    command->add_option("place", arguments->place, "A checkpoint or a run folder")->required();
    command = add(*checkpoint, chosen, arguments, "diff", "Which tensors differ, and by how much", diff);
    command->add_option("first", arguments->place, "A checkpoint or a run folder")->required();
    command->add_option("second", arguments->other, "Another")->required();
    command->add_option("--top", arguments->top, "Tensors to print, the largest differences")->capture_default_str();
    command->add_flag("--exit-code", arguments->exit_code, "End with 1 when a tensor differs");
}

}  // namespace lockstep::cli
