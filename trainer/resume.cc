#include "trainer/resume.h"

#include <algorithm>

#include <fmt/format.h>

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

}  // namespace

CheckpointFolderOptions checkpoint_folder_options(const Experiment& experiment) {
    return {.folder = fs::path(experiment.run.dir) / "checkpoints",
            .keep_last = experiment.checkpoint.keep_last,
            .best = experiment.checkpoint.best};
}

std::optional<std::filesystem::path> choose_checkpoint(const Experiment& experiment) {
    const CheckpointFolder folder(checkpoint_folder_options(experiment));
    folder.clean_leftovers();
    if (experiment.run.resume == "never") {
        if (const auto aside = folder.set_aside())
            log::info("run.resume=never: older checkpoints were moved to {}", aside->string());
        return std::nullopt;
    }
    if (experiment.run.resume != "auto") return open_checkpoint(experiment.run.resume).path;
    const std::optional<FoundCheckpoint> found = folder.latest();
    if (!found) return std::nullopt;
    for (const std::string& warning : found->warnings) log::warn("{}; continuing from {}", warning, found->path.string());
    return found->path;
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
        if (then != value) refuse(key, then, value);
    }
    if (manifest.train_fingerprint != train_fingerprint) {
        refuse("the training data's fingerprint", hash_hex(manifest.train_fingerprint), hash_hex(train_fingerprint));
    }
}

}  // namespace lockstep
