#include "bench/turn.h"

#include <nlohmann/json.hpp>

namespace lockstep::bench {

using Json = nlohmann::json;

std::string ContestantPlan::setting(std::string_view name) const {
    for (const auto& [key, value] : settings) {
        if (key == name) return value;
    }
    return {};
}

std::string ContestantPlan::to_json() const {
    return Json{{"control", control},
                {"folder", folder},
                {"number", number},
                {"rank", rank},
                {"rank_count", rank_count},
                {"ranks_per_node", ranks_per_node},
                {"cores_per_rank", cores_per_rank},
                {"yields", yields},
                {"store_host", store_host},
                {"interface", interface},
                {"buffer_count", buffer_count},
                {"settings", settings}}
        .dump();
}

ContestantPlan ContestantPlan::from_json(const std::string& text) {
    const Json json = Json::parse(text);
    return {.control = json.at("control"),
            .folder = json.at("folder"),
            .number = json.at("number"),
            .rank = json.at("rank"),
            .rank_count = json.at("rank_count"),
            .ranks_per_node = json.at("ranks_per_node"),
            .cores_per_rank = json.at("cores_per_rank"),
            .yields = json.at("yields"),
            .store_host = json.at("store_host"),
            .interface = json.at("interface"),
            .buffer_count = json.at("buffer_count"),
            .settings = json.at("settings")};
}

std::string Turn::to_json() const {
    return Json{{"counts", counts}, {"shift", shift}, {"iterations", iterations}, {"seed", seed}}.dump();
}

Turn Turn::from_json(const std::string& text) {
    const Json json = Json::parse(text);
    return {.counts = json.at("counts"), .shift = json.at("shift"), .iterations = json.at("iterations"), .seed = json.at("seed")};
}

std::string Hello::to_json() const { return Json{{"number", number}, {"rank", rank}, {"version", version}}.dump(); }

Hello Hello::from_json(const std::string& text) {
    const Json json = Json::parse(text);
    return {.number = json.at("number"), .rank = json.at("rank"), .version = json.at("version")};
}

std::string TurnResult::to_json() const {
    return Json{{"us", us}, {"cpu_s", cpu_s}, {"link_bytes", link_bytes}, {"wrong", wrong}}.dump();
}

TurnResult TurnResult::from_json(const std::string& text) {
    const Json json = Json::parse(text);
    return {.us = json.at("us"), .cpu_s = json.at("cpu_s"), .link_bytes = json.at("link_bytes"), .wrong = json.at("wrong")};
}

int64_t place_tensors(const std::vector<int64_t>& counts, std::vector<int64_t>& offsets) {
    constexpr int64_t kAligned = 16;  // floats
    int64_t end = 0;
    offsets.clear();
    for (const int64_t count : counts) {
        offsets.push_back(end);
        end += (count + kAligned - 1) / kAligned * kAligned;
    }
    return end;
}

}  // namespace lockstep::bench
