#include "cli/chaos_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "configs/document.h"
#include "core/error.h"
#include "core/files.h"

namespace lockstep::cli {

namespace {

constexpr std::array<std::pair<Fault, std::string_view>, 13> kNames{{{Fault::kill, "kill"},
                                                                     {Fault::stop, "stop"},
                                                                     {Fault::pause, "pause"},
                                                                     {Fault::slow, "slow"},
                                                                     {Fault::terminate, "terminate"},
                                                                     {Fault::nan, "nan"},
                                                                     {Fault::flip, "flip"},
                                                                     {Fault::wrong_config, "wrong_config"},
                                                                     {Fault::corrupt_checkpoint, "corrupt_checkpoint"},
                                                                     {Fault::full_disk, "full_disk"},
                                                                     {Fault::cut_link, "cut_link"},
                                                                     {Fault::slow_link, "slow_link"},
                                                                     {Fault::clock_skew, "clock_skew"}}};

[[noreturn]] void fail(const Node& node, const std::string& what, const std::string& allowed) {
    throw ConfigError(fmt::format("{}: {}: found {}; allowed: {}", node.place.text(), what, node.describe(), allowed));
}

void allow_only(const Node& mapping, const std::string& what, std::initializer_list<std::string_view> keys) {
    if (mapping.kind != Node::Kind::mapping) fail(mapping, what, fmt::format("a mapping of {}", fmt::join(keys, ", ")));
    for (const Member& member : mapping.members) {
        if (std::ranges::find(keys, std::string_view(member.key)) != keys.end()) continue;
        throw ConfigError(fmt::format("{}: {}: unknown key \"{}\"; allowed: {}", member.key_place.text(), what, member.key,
                                      fmt::join(keys, ", ")));
    }
}

int64_t whole_number(const Node& node, const std::string& what, int64_t least, int64_t most) {
    int64_t value = 0;
    const char* const end = node.scalar.data() + node.scalar.size();
    const auto [stop, error] = std::from_chars(node.scalar.data(), end, value);
    const bool is_number = node.kind == Node::Kind::scalar && error == std::errc() && stop == end && !node.scalar.empty();
    if (!is_number || value < least || value > most) fail(node, what, fmt::format("a whole number, {} to {}", least, most));
    return value;
}

double seconds(const Node& node, const std::string& what) {
    double value = 0.0;
    const char* const end = node.scalar.data() + node.scalar.size();
    const auto [stop, error] = std::from_chars(node.scalar.data(), end, value);
    if (node.kind != Node::Kind::scalar || error != std::errc() || std::string_view(stop, end) != "s" || value <= 0.0) {
        fail(node, what, "a time such as 2s or 0.5s");
    }
    return value;
}

std::vector<std::string> texts(const Node& node, const std::string& what) {
    if (node.kind == Node::Kind::scalar) return {node.scalar};
    if (node.kind != Node::Kind::sequence) fail(node, what, "a text or a list of texts");
    std::vector<std::string> found;
    for (const Node& item : node.items) {
        if (item.kind != Node::Kind::scalar) fail(item, what, "a text");
        found.push_back(item.scalar);
    }
    return found;
}

Expectation usual(Fault fault, int rank) {
    const std::string its_name = fmt::format("rank {}", rank);
    switch (fault) {
        case Fault::kill:
            return {140, {its_name, "SIGKILL"}, 2.0};
        case Fault::stop:
            return {140, {its_name, "no progress for"}, kCommTimeoutS + 2.0};
        case Fault::pause:
        case Fault::slow_link:
            return {0, {}, 0.0};
        case Fault::slow:
            return {0, {its_name}, 0.0};
        case Fault::terminate:
            return {138, {"stopped on request"}, 3.0};
        case Fault::nan:
            return {5, {its_name + ": the parameter"}, 2.0};
        case Fault::flip:
            return {4, {"the replicas differ: " + its_name}, 2.0};
        case Fault::wrong_config:
            return {2, {"the ranks disagree", its_name}, 0.0};
        case Fault::corrupt_checkpoint:
            return {0, {"is damaged and passed over", "continuing from"}, 0.0};
        case Fault::full_disk:
            return {4, {"was not written", "No space left"}, 0.0};
        case Fault::cut_link:
            return {140, {"no progress for"}, kCommTimeoutS + 3.0};
        case Fault::clock_skew:
            return {0, {"the clock of", "s ahead", "set the clocks"}, 0.0};
    }
    return {};
}

Fault fault_of(const Node& node) {
    std::vector<std::string> names;
    for (const auto& [fault, name] : kNames) {
        if (node.kind == Node::Kind::scalar && node.scalar == name) return fault;
        names.emplace_back(name);
    }
    fail(node, "fault", fmt::format("{}", fmt::join(names, ", ")));
}

Drill read_drill(const Node& node, int ranks) {
    allow_only(node, "a fault", {"fault", "name", "rank", "at_step", "expect"});
    const Node* const fault = node.find("fault");
    if (fault == nullptr) fail(node, "a fault", "a mapping that says `fault:`");
    Drill drill{.fault = fault_of(*fault), .rank = std::min(1, ranks - 1)};
    if (const Node* rank = node.find("rank")) drill.rank = static_cast<int>(whole_number(*rank, "rank", 0, ranks - 1));
    if (const Node* step = node.find("at_step")) drill.at_step = whole_number(*step, "at_step", 1, 1'000'000'000);
    drill.name = name_of(drill.fault);
    if (const Node* name = node.find("name")) drill.name = texts(*name, "name").front();
    drill.expect = usual(drill.fault, drill.rank);
    if (const Node* expect = node.find("expect")) {
        allow_only(*expect, "expect", {"exit", "says", "within"});
        if (const Node* code = expect->find("exit")) drill.expect.exit_code = static_cast<int>(whole_number(*code, "exit", 0, 255));
        if (const Node* says = expect->find("says")) drill.expect.says = texts(*says, "says");
        if (const Node* within = expect->find("within")) drill.expect.within_s = seconds(*within, "within");
    }
    return drill;
}

ChaosPlan every_fault() {
    ChaosPlan plan;
    for (const auto& [fault, name] : kNames) {
        plan.drills.push_back({.name = std::string(name), .fault = fault, .expect = usual(fault, Drill{}.rank)});
    }
    return plan;
}

}  // namespace

std::string_view name_of(Fault fault) {
    return std::ranges::find(kNames, fault, [](const auto& row) { return row.first; })->second;
}

ChaosPlan read_plan(const std::string& place) {
    if (place == "all") return every_fault();
    if (!fs::exists(place)) throw ConfigError(fmt::format("{}: no such plan; write one (docs/faults.md), or say all", place));
    const Node root = parse_yaml(read_file(place), place);
    allow_only(root, "a plan", {"ranks", "limit", "faults"});
    ChaosPlan plan;
    if (const Node* ranks = root.find("ranks")) plan.ranks = static_cast<int>(whole_number(*ranks, "ranks", 1, 1024));
    if (const Node* limit = root.find("limit")) plan.limit_s = seconds(*limit, "limit");
    const Node* const faults = root.find("faults");
    if (faults == nullptr || faults->kind != Node::Kind::sequence || faults->items.empty()) {
        fail(faults == nullptr ? root : *faults, "faults", "a list of faults");
    }
    for (const Node& item : faults->items) plan.drills.push_back(read_drill(item, plan.ranks));
    for (const Drill& drill : plan.drills) {
        const auto same = [&](const Drill& other) { return other.name == drill.name; };
        if (std::ranges::count_if(plan.drills, same) > 1) {
            throw ConfigError(fmt::format("{}: two faults are named \"{}\"; give each a `name:` of its own", place, drill.name));
        }
    }
    return plan;
}

}  // namespace lockstep::cli
