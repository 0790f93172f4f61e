#include "launch/preflight.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/json_text.h"
#include "core/text.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

constexpr size_t kListedPaths = 8;
constexpr int64_t kReachMs = 2000;  // for a node that does not answer

std::string facts_key(int rank) { return fmt::format("preflight/facts/{}", rank); }
std::string port_key(int node) { return fmt::format("preflight/port/{}", node); }
std::string pairs_key(int node) { return fmt::format("preflight/pairs/{}", node); }
// With which the server of a node proves that it is that one: at 127.0.0.1 each node meets its own.
std::string proof_key(const World& world, int node) { return fmt::format("{}/{}", world.job_id, node); }
constexpr const char* kVerdictKey = "preflight/verdict";

// What each node's first rank does: it answers the others and asks them, all after it in turn first, so that not all ask one node.
std::vector<NodePair> reach_the_others(const World& world, Store& store, const std::vector<std::vector<std::string>>& addresses,
                                       int64_t timeout_ms) {
    std::vector<NodePair> pairs;
    for (int step = 1; step < world.node_count; ++step) {
        const int other = (world.node + step) % world.node_count;
        const int port = std::stoi(store.wait(port_key(other), timeout_ms));
        const auto& theirs = addresses[static_cast<size_t>(other)];
        if (!theirs.empty()) pairs.push_back(reach(world.node, other, theirs, port, proof_key(world, other), kReachMs));
    }
    return pairs;
}

std::vector<MachineFacts> facts_of_all(const World& world, Store& store, int64_t timeout_ms) {
    std::vector<MachineFacts> ranks;
    for (int rank = 0; rank < world.size; ++rank) ranks.push_back(facts_from_json(store.wait(facts_key(rank), timeout_ms)));
    return ranks;
}

// By node: of its first rank.
std::vector<std::vector<std::string>> addresses_of_nodes(const World& world, const std::vector<MachineFacts>& ranks) {
    std::vector<std::vector<std::string>> addresses(static_cast<size_t>(world.node_count));
    for (const MachineFacts& rank : ranks) {
        if (rank.local_rank == 0) addresses.at(static_cast<size_t>(rank.node)) = rank.addresses;
    }
    return addresses;
}

Json findings_json(const std::vector<PreflightFinding>& findings) {
    Json list = Json::array();
    for (const PreflightFinding& finding : findings)
        list.push_back({{"kind", finding.is_error ? "error" : "warning"}, {"text", finding.text}});
    return list;
}

std::vector<PreflightFinding> findings_from(const std::string& text) {
    std::vector<PreflightFinding> findings;
    for (const Json& item : Json::parse(text)) findings.push_back({item.at("kind") == "error", item.at("text")});
    return findings;
}

}  // namespace

Preflight run_preflight(const World& world, Store& store, const MachineQuestions& questions, const PreflightNeeds& needs,
                        int64_t timeout_ms) {
    const int64_t begin_ns = now_ns();
    Preflight preflight;
    const bool speaks_for_node = world.local_rank == 0;
    std::unique_ptr<ReachabilityServer> server;  // until the verdict: by then all have asked
    if (speaks_for_node && world.node_count > 1) {
        server = ReachabilityServer::start(proof_key(world, world.node));
        store.set(port_key(world.node), fmt::format("{}", server->port()));
    }
    store.set(facts_key(world.rank), to_json(machine_facts(world, questions)));
    if (speaks_for_node || world.is_leader()) preflight.ranks = facts_of_all(world, store, timeout_ms);
    if (speaks_for_node) {
        store.set(pairs_key(world.node),
                  to_json(reach_the_others(world, store, addresses_of_nodes(world, preflight.ranks), timeout_ms)));
    }
    if (!world.is_leader()) {
        const int64_t patience_ms = timeout_ms + kReachMs * world.node_count;
        return {.ranks = {}, .pairs = {}, .findings = findings_from(store.wait(kVerdictKey, patience_ms)), .seconds = 0.0};
    }
    for (int node = 0; node < world.node_count; ++node) {
        const auto pairs = pairs_from_json(store.wait(pairs_key(node), timeout_ms + kReachMs * world.node_count));
        preflight.pairs.insert(preflight.pairs.end(), pairs.begin(), pairs.end());
    }
    preflight.findings = find_problems(preflight.ranks, preflight.pairs, needs);
    preflight.seconds = 1e-9 * static_cast<double>(now_ns() - begin_ns);
    store.set(kVerdictKey, json_text(findings_json(preflight.findings)));
    return preflight;
}

namespace {

std::string gib(uint64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

std::string limit(uint64_t value) { return value == UINT64_MAX ? "unlimited" : fmt::format("{}", value); }

std::string node_text(const MachineFacts& first, size_t rank_count) {
    std::string text = fmt::format("node {}: {} ({}), {} rank{} of {} thread{}\n", first.node, first.host,
                                   first.addresses.empty() ? "no address" : first.addresses.front(), rank_count,
                                   rank_count == 1 ? "" : "s", first.compute_threads, first.compute_threads == 1 ? "" : "s");
    text += fmt::format("    {} of {} cores allowed, {}; memory {} free of {}\n", first.allowed_cores, first.node_cores,
                        first.instruction_set, gib(first.memory_free), gib(first.memory));
    text += fmt::format("    /dev/shm {} free of {}; run.dir {} free; {} open files (at most {}), {} bytes of locked memory\n",
                        gib(first.shared_memory.free), gib(first.shared_memory.total), gib(first.run_folder.free), first.open_files,
                        limit(first.open_files_limit), limit(first.locked_memory));
    return text;
}

std::string pairs_text(const std::vector<NodePair>& pairs) {
    if (pairs.empty()) return {};
    const auto reached = std::count_if(pairs.begin(), pairs.end(), [](const NodePair& pair) { return pair.problem.empty(); });
    double shortest_ms = HUGE_VAL, longest_ms = 0.0, offset_ms = 0.0;
    for (const NodePair& pair : pairs) {
        if (!pair.problem.empty()) continue;
        shortest_ms = std::min(shortest_ms, pair.round_trip_ms);
        longest_ms = std::max(longest_ms, pair.round_trip_ms);
        offset_ms = std::max(offset_ms, std::abs(pair.clock_offset_ms));
    }
    if (reached == 0) return fmt::format("links: 0 of {} reached\n", pairs.size());
    return fmt::format("links: {} of {} reached, round trips {:.2f} to {:.2f} ms; clocks at most {:.2f} ms apart\n", reached,
                       pairs.size(), shortest_ms, longest_ms, offset_ms);
}

std::string data_text(const std::vector<PathFact>& data) {
    if (data.size() > kListedPaths)
        return fmt::format("data: {} files and folders, the first {}\n", data.size(), data.front().path);
    std::string text;
    for (const PathFact& fact : data) {
        if (fact.problem.empty()) text += fmt::format("data: {}, a {}\n", fact.path, fact.found);
    }
    return text;
}

}  // namespace

std::string to_text(const Preflight& preflight) {
    std::map<int, std::vector<const MachineFacts*>> nodes;
    for (const MachineFacts& rank : preflight.ranks) nodes[rank.node].push_back(&rank);
    const std::string& launcher = preflight.ranks.front().launcher;
    std::string text = fmt::format("{} on {}, started {}; program {}\n", counted(std::ssize(preflight.ranks), "rank"),
                                   counted(std::ssize(nodes), "node"), launcher == "single" ? "alone" : "by " + launcher,
                                   preflight.ranks.front().program);
    for (const auto& [node, members] : nodes) text += node_text(*members.front(), members.size());
    text += pairs_text(preflight.pairs);
    text += data_text(preflight.ranks.front().data);
    size_t errors = 0;
    for (const PreflightFinding& finding : preflight.findings) {
        text += fmt::format("{}: {}\n", finding.is_error ? "error" : "warning", finding.text);
        errors += finding.is_error ? 1 : 0;
    }
    const size_t warnings = preflight.findings.size() - errors;
    return text + fmt::format("{}: {}, {}; {:.1f} s\n", errors == 0 ? "ready" : "not ready",
                              counted(static_cast<int64_t>(errors), "error"), counted(static_cast<int64_t>(warnings), "warning"),
                              preflight.seconds);
}

std::string to_json(const Preflight& preflight) {
    Json ranks = Json::array();
    for (const MachineFacts& rank : preflight.ranks) ranks.push_back(Json::parse(to_json(rank)));
    const Json json{{"ready", preflight.is_fine()},
                    {"ranks", ranks},
                    {"links", Json::parse(to_json(preflight.pairs))},
                    {"findings", findings_json(preflight.findings)},
                    {"seconds", preflight.seconds}};
    return json_text(json);
}

}  // namespace lockstep
