#include "trainer/resume.h"

#include <algorithm>
#include <iterator>
#include <regex>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/log.h"

namespace lockstep {

namespace {

std::string value_of(const ResultKeys& keys, const std::string& key) {
    const auto found = std::find_if(keys.begin(), keys.end(), [&](const auto& pair) { return pair.first == key; });
    return found == keys.end() ? "absent" : found->second;
}

struct Difference {
    std::string key, then, now;
};

std::vector<std::string> matches(const std::string& text, const char* pattern) {
    const std::regex expression(pattern);
    std::vector<std::string> found;
    for (auto match = std::sregex_iterator(text.begin(), text.end(), expression); match != std::sregex_iterator(); ++match) {
        found.push_back(match->str());
    }
    return found;
}

// Options that only `mine` has.
std::string own_options(const std::vector<std::string>& mine, const std::vector<std::string>& others) {
    std::vector<std::string> own;
    std::ranges::copy_if(mine, std::back_inserter(own), [&](const auto& each) { return std::ranges::count(others, each) == 0; });
    return own.empty() ? "without it" : fmt::format("{}", fmt::join(own, ", "));
}

// Where two pipelines begin to differ: which entry, and in it which options. They are compared as checkpoints hold them, in the
// words of result_keys: `hflip(size [], pad 0, ..., probability 0.5) {"filter": "area"} ...`.
Difference pipeline_difference(const std::string& key, const std::string& then, const std::string& now) {
    constexpr const char* kEntry = R"(\w+\([^)]*\)( \{[^}]*\})*)";
    constexpr const char* kOption = R"(\w+ (\[[^\]]*\]|[^ ,()]+)|"\w+": [^,}]+)";
    const std::vector<std::string> entries_then = matches(then, kEntry), entries_now = matches(now, kEntry);
    const size_t common = std::min(entries_then.size(), entries_now.size());
    size_t place = 0;
    while (place < common && entries_then[place] == entries_now[place]) ++place;
    const auto name = [&](const auto& entries) {
        return place < entries.size() ? entries[place].substr(0, entries[place].find('(')) : std::string("absent");
    };
    Difference difference{fmt::format("entry {} of {}", place + 1, key), name(entries_then), name(entries_now)};
    if (place == common || difference.then != difference.now) return difference;
    const auto options_then = matches(entries_then[place], kOption), options_now = matches(entries_now[place], kOption);
    return {fmt::format("{}, {},", difference.key, difference.then), own_options(options_then, options_now),
            own_options(options_now, options_then)};
}

}  // namespace

CheckpointFolderOptions checkpoint_folder_options(const Experiment& experiment) {
    return {.folder = fs::path(experiment.run.dir) / "checkpoints",
            .keep_last = experiment.checkpoint.keep_last,
            .best = experiment.checkpoint.best};
}

std::optional<std::filesystem::path> choose_checkpoint(const Experiment& experiment, bool again) {
    const CheckpointFolder folder(checkpoint_folder_options(experiment));
    folder.clean_leftovers();
    const std::string& wish = experiment.run.resume;
    std::optional<FoundCheckpoint> named;
    if (wish != "auto" && wish != "never") named = open_checkpoint(wish);
    const int64_t from = named ? named->manifest.step : -1;
    if (wish == "auto" || again) {
        // Of later steps than the one to begin with there are only those that this job has saved: its first start moved all others.
        if (const auto found = folder.latest(); found && found->manifest.step > from) {
            for (const std::string& warning : found->warnings) log::warn("{}; continuing from {}", warning, found->path.string());
            return found->path;
        }
    }
    if (wish == "auto") return std::nullopt;
    if (const auto aside = folder.set_aside(from)) {
        log::info("run.resume={}: {} checkpoints were moved to {}", wish, named ? "later" : "older", aside->string());
    }
    return named ? std::optional(named->path) : std::nullopt;
}

void require_continuation(const Manifest& manifest, const ResultKeys& now, uint64_t train_fingerprint,
                          const std::filesystem::path& checkpoint) {
    const auto refuse = [&](const std::string& key, const std::string& then_value, const std::string& now_value) {
        throw ConfigError(
            fmt::format("{}: {} was {} there and is {} now, so this would not be the same run; restore the value, or "
                        "start anew in another run.dir (or with run.resume=never)",
                        checkpoint.string(), key, then_value, now_value));
    };
    for (const auto& [key, value] : now) {
        const std::string then = value_of(manifest.result_keys, key);
        const bool is_younger = key == "comm.wire" || key == "data.train.raw_colour";  // than checkpoints of version 0.1.0
        if (then == value || (is_younger && then == "absent")) continue;
        const bool is_pipeline = key == "data.train.pipeline" && then != "absent";
        const Difference difference = is_pipeline ? pipeline_difference(key, then, value) : Difference{key, then, value};
        refuse(difference.key, difference.then, difference.now);
    }
    if (manifest.train_fingerprint != train_fingerprint) {
        refuse("the training data's fingerprint", hash_hex(manifest.train_fingerprint), hash_hex(train_fingerprint));
    }
}

}  // namespace lockstep
