#include "report/facts_json.h"

#include <nlohmann/json.hpp>

#include "core/json_text.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

std::string facts_to_json(const RunFacts& facts) {
    Json buckets = Json::array();
    for (const BucketInfo& bucket : facts.buckets) buckets.push_back({{"layers", bucket.layers}, {"bytes", bucket.bytes}});
    Json extra = Json::object();
    for (const auto& [key, value] : facts.extra) extra[key] = value;
    const Json json = {
        {"name", facts.name},
        {"model", facts.model},
        {"data", facts.data},
        {"backend", facts.backend},
        {"communicator", facts.communicator},
        {"command", facts.command},
        {"config_hash", facts.config_hash},
        {"program_version", facts.program_version},
        {"host", facts.host},
        {"started", facts.started},
        {"world_size", facts.world_size},
        {"rank", facts.rank},
        {"threads", facts.threads},
        {"batch_global", facts.batch_global},
        {"per_replica", facts.per_replica},
        {"seed", facts.seed},
        {"parameter_count", facts.parameter_count},
        {"buckets", buckets},
        {"extra", extra},
    };
    return json_text(json, 2);
}

namespace {

RunFacts parse_facts(std::string_view text) {
    const Json json = Json::parse(text);
    RunFacts facts;
    facts.name = json.at("name");
    facts.model = json.at("model");
    facts.data = json.at("data");
    facts.backend = json.at("backend");
    facts.communicator = json.at("communicator");
    facts.command = json.at("command");
    facts.config_hash = json.at("config_hash");
    facts.program_version = json.at("program_version");
    facts.host = json.at("host");
    facts.started = json.at("started");
    facts.world_size = json.at("world_size");
    facts.rank = json.at("rank");
    facts.threads = json.at("threads");
    facts.batch_global = json.at("batch_global");
    facts.per_replica = json.at("per_replica");
    facts.seed = json.at("seed");
    facts.parameter_count = json.at("parameter_count");
    for (const Json& bucket : json.at("buckets")) facts.buckets.push_back({bucket.at("layers"), bucket.at("bytes")});
    for (const auto& [key, value] : json.at("extra").items()) facts.extra.emplace_back(key, value);
    return facts;
}

}  // namespace

std::optional<RunFacts> facts_from_json(std::string_view text) noexcept {
    try {
        RunFacts facts = parse_facts(text);
        constexpr int kMaxRanks = 1 << 20;  // a foreign number must not become a loop bound
        if (facts.world_size < 1 || facts.world_size > kMaxRanks || facts.rank < 0 || facts.rank >= facts.world_size) {
            return std::nullopt;
        }
        return facts;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

}  // namespace lockstep
