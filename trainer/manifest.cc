#include "trainer/manifest.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/hash.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

uint64_t parse_hex(const std::string& text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc() || end != text.data() + text.size())
        throw std::invalid_argument(fmt::format("\"{}\" is no hash", text));
    return value;
}

// Over the text of everything else in the file.
std::string checksum_of(const Json& json) { return hash_hex(hash_text(json.dump(2))); }

// The first version knew no other batch than the configured one.
void read_place(const Json& json, int version, Manifest& manifest) {
    if (version == 1) {
        manifest.batch_global = std::stoll(json.at("result_keys").at("batch.global").get<std::string>());
        manifest.place = {.epoch = manifest.step / manifest.steps_per_epoch,
                          .samples = manifest.step % manifest.steps_per_epoch * manifest.batch_global};
        return;
    }
    manifest.batch_global = json.at("batch_global").get<int64_t>();
    manifest.place = {.epoch = json.at("place").at("epoch").get<int64_t>(),
                      .samples = json.at("place").at("samples").get<int64_t>()};
    if (manifest.batch_global < 0 || manifest.place.epoch < 0 || manifest.place.samples < 0) {
        throw std::invalid_argument("impossible numbers of samples");
    }
}

Manifest from_json(Json json) {
    const std::string expected = json.at("checksum").get<std::string>();
    json.erase("checksum");
    if (const std::string found = checksum_of(json); found != expected) {
        throw std::invalid_argument(fmt::format("its content has checksum {}, not {} as it says; it was changed", found, expected));
    }
    const int version = json.at("format_version").get<int>();
    if (version < 1 || version > Manifest::kFormatVersion) {
        throw std::invalid_argument(fmt::format("format version {} is not 1 to {}", version, Manifest::kFormatVersion));
    }
    Manifest manifest{.step = json.at("step").get<int64_t>(),
                      .epoch = json.at("epoch").get<double>(),
                      .steps_per_epoch = json.at("steps_per_epoch").get<int64_t>(),
                      .total_steps = json.at("total_steps").get<int64_t>(),
                      .seed = json.at("seed").get<uint64_t>(),
                      .config_hash = json.at("config_hash").get<std::string>(),
                      .world_size = json.at("world_size").get<int>(),
                      .train_fingerprint = parse_hex(json.at("train_fingerprint").get<std::string>()),
                      .class_names = json.at("class_names").get<std::vector<std::string>>(),
                      .num_classes = json.at("num_classes").get<int64_t>(),
                      .files = json.at("files").get<std::map<std::string, std::string>>()};
    for (const auto& [key, value] : json.at("metrics").items()) {
        if (!value.is_null()) manifest.metrics[key] = value.get<double>();
    }
    if (manifest.step < 0 || manifest.steps_per_epoch < 1 || manifest.world_size < 1) {
        throw std::invalid_argument("impossible numbers of steps or ranks");
    }
    for (const auto& [key, value] : json.at("result_keys").items()) {
        // Its name in checkpoints of version 0.1.0, though the setting never had it.
        manifest.result_keys.emplace_back(key == "data.std" ? "data.stddev" : key, value.get<std::string>());
    }
    for (const auto& [key, value] : json.at("optimizer").items()) manifest.optimizer.emplace_back(key, value.get<double>());
    const Json& interval = json.at("interval");
    manifest.interval = {.loss_sum = interval.at("loss_sum").get<double>(),
                         .correct = interval.at("correct").get<int64_t>(),
                         .images = interval.at("images").get<int64_t>()};
    read_place(json, version, manifest);
    return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
    Json keys = Json::object();
    for (const auto& [key, value] : manifest.result_keys) keys[key] = value;
    Json optimizer = Json::object();
    for (const auto& [key, value] : manifest.optimizer) optimizer[key] = value;
    // JSON has no NaN, and one compares with nothing: such a metric is as if it had not been measured.
    Json metrics = Json::object();
    for (const auto& [key, value] : manifest.metrics) {
        if (std::isfinite(value)) metrics[key] = value;
    }
    Json json = {
        {"format_version", Manifest::kFormatVersion},
        {"step", manifest.step},
        {"epoch", manifest.epoch},
        {"place", {{"epoch", manifest.place.epoch}, {"samples", manifest.place.samples}}},
        {"steps_per_epoch", manifest.steps_per_epoch},
        {"total_steps", manifest.total_steps},
        {"batch_global", manifest.batch_global},
        {"seed", manifest.seed},
        {"config_hash", manifest.config_hash},
        {"world_size", manifest.world_size},
        {"result_keys", keys},
        {"optimizer", optimizer},
        {"metrics", metrics},
        {"interval",
         {{"loss_sum", manifest.interval.loss_sum}, {"correct", manifest.interval.correct}, {"images", manifest.interval.images}}},
        {"train_fingerprint", hash_hex(manifest.train_fingerprint)},
        {"num_classes", manifest.num_classes},
        {"class_names", manifest.class_names},
        {"files", manifest.files}};
    json["checksum"] = checksum_of(json);
    return json.dump(2) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::filesystem::path& path) {
    try {
        return from_json(Json::parse(text));
    } catch (const std::exception& error) {
        throw DataError(
            fmt::format("{}: not a sound checkpoint manifest: {}; use another checkpoint", path.string(), error.what()));
    }
}

}  // namespace lockstep
